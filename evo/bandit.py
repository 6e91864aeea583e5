"""What operators and policies earn, and who gets the next requests.

An arm is `tune`, `crossover`, `repair`, or `rewrite/` and the policy that was asked. Its reward for a child is
max(0, child - max(parent, baseline)) in log speedup, divided by what the child cost; older rewards count less with
every generation. The next request goes to the arm with the largest upper confidence bound (discounted UCB, Garivier
and Moulines 2008).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from evaluator.types import Frozen
from evo.candidate import Candidate, Record
from evo.config_search import OperatorsConfig

CHEAPEST = 1e-3
"""Least cost of a child in seconds: what the cache answers is not free of charge."""


class Credit(Frozen):
    """What an arm did and earned in the whole run, and of late."""

    tried: int = 0
    passed: int = 0
    gain: float = 0.0
    """Sum of rewards, in log speedup."""
    seconds: float = 0.0
    """Of judging."""
    tokens: int = 0
    """Of prompts and answers, where a model says how many."""
    recent_tried: float = 0.0
    recent_gain: float = 0.0
    recent_cost: float = 0.0
    recent_top: float = 0.0
    """Largest gain per cost of one candidate. These four lose weight with every generation."""

    @property
    def rate(self) -> float:
        """Discounted gain per cost."""
        return self.recent_gain / self.recent_cost if self.recent_cost > 0 else 0.0


class HasSpeedup(Protocol):
    """What is asked of a parent."""

    @property
    def speedup(self) -> float | None:
        """Over the baseline; None unless passed."""
        ...


class Bandit:
    """Credit by arm, and the division of a batch among arms. Arms appear when they first earn or are offered."""

    def __init__(self, config: OperatorsConfig) -> None:
        self._config = config
        self._credits: dict[str, Credit] = {}

    @property
    def credits(self) -> Mapping[str, Credit]:
        """Arm -> credit, in the order in which arms appeared."""
        return self._credits

    def tell(self, record: Record, parent: HasSpeedup | None) -> None:
        """A child has its verdict; what has no parent is nobody's merit."""
        if parent is None:
            return
        arm, seconds = arm_of(record.candidate), max(record.evaluation.seconds, 0.0)
        gain, tokens = reward(record.speedup, parent.speedup), tokens_of(record.candidate)
        cost = 1.0
        if self._config.charge == "costs":
            cost = max(CHEAPEST, seconds + self._config.token_seconds * tokens)
        known = self._credits.get(arm, Credit())
        self._credits[arm] = Credit(
            tried=known.tried + 1,
            passed=known.passed + record.passed,
            gain=known.gain + gain,
            seconds=known.seconds + seconds,
            tokens=known.tokens + tokens,
            recent_tried=known.recent_tried + 1,
            recent_gain=known.recent_gain + gain,
            recent_cost=known.recent_cost + cost,
            recent_top=max(known.recent_top, gain / cost),
        )

    def miss(self, arm: str, count: int) -> None:
        """Requests of an arm that led to no candidate: tries without a gain, so that a silent policy loses its turn."""
        known = self._credits.get(arm, Credit())
        cost = count * (1.0 if self._config.charge == "candidates" else CHEAPEST)
        more = {"recent_tried": known.recent_tried + count, "recent_cost": known.recent_cost + cost}
        self._credits[arm] = known.model_copy(update=more)

    def fade(self) -> None:
        """A generation ended: everything earned so far counts less."""
        for arm, known in self._credits.items():
            faded = {name: getattr(known, name) * self._config.decay for name in _RECENT}
            self._credits[arm] = known.model_copy(update=faded)

    def divide(self, arms: Sequence[str], count: int) -> list[str]:
        """An arm for each of `count` places, of `arms` alone, each place to the one that promises most.

        Arms that earned something and are no longer offered (another list of operators or policies) get nothing.
        """
        known = {arm: self._credits.get(arm, Credit()) for arm in arms}
        # Most candidates gain nothing and few gain much, so that the unit is one large gain and not a mean: after the
        # first lucky ones no arm is left alone with the batch.
        unit = max((credit.recent_top for credit in known.values()), default=0.0) or 1.0
        chosen: Counter[str] = Counter()
        places = []
        for _ in range(count if arms else 0):
            total = sum(credit.recent_tried for credit in known.values()) + chosen.total()
            bound = {
                arm: _bound(credit.rate / unit, credit.recent_tried + chosen[arm], total, self._config.exploration)
                for arm, credit in known.items()
            }
            places.append(max(arms, key=bound.__getitem__))
            chosen[places[-1]] += 1
        return places


_RECENT = ("recent_tried", "recent_gain", "recent_cost", "recent_top")


def _bound(rate: float, tried: float, total: float, exploration: float) -> float:
    if tried == 0:
        return math.inf
    return rate + exploration * math.sqrt(math.log(1 + total) / tried)


def reward(child: float | None, parent: float | None) -> float:
    """max(0, child - max(parent, baseline)) in log speedup; 0 for a child that failed."""
    return max(0.0, math.log(child) - max(math.log(parent) if parent else 0.0, 0.0)) if child else 0.0


def arm_of(candidate: Candidate) -> str:
    """The arm that made a candidate; of runs that recorded none, its operator."""
    return candidate.arm or candidate.operator


def tokens_of(candidate: Candidate) -> int:
    """Tokens of prompt and answer; 0 where no model said how many."""
    counts = [candidate.sampling.get(name) for name in ("prompt_tokens", "completion_tokens")]
    return sum(count for count in counts if isinstance(count, int))
