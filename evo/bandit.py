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
from dataclasses import asdict, dataclass
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


@dataclass(slots=True)
class _Account:
    """An arm's `Credit` while it is kept: every candidate changes it."""

    tried: int = 0
    passed: int = 0
    gain: float = 0.0
    seconds: float = 0.0
    tokens: int = 0
    recent_tried: float = 0.0
    recent_gain: float = 0.0
    recent_cost: float = 0.0
    recent_top: float = 0.0

    @property
    def rate(self) -> float:
        """Discounted gain per cost."""
        return self.recent_gain / self.recent_cost if self.recent_cost > 0 else 0.0

    def fade(self, decay: float) -> None:
        """What is recent counts less."""
        self.recent_tried *= decay
        self.recent_gain *= decay
        self.recent_cost *= decay
        self.recent_top *= decay


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
        self._accounts: dict[str, _Account] = {}

    @property
    def credits(self) -> Mapping[str, Credit]:
        """Arm -> credit, in the order in which arms appeared."""
        return {arm: Credit(**asdict(account)) for arm, account in self._accounts.items()}

    def tell(self, record: Record, parent: HasSpeedup | None) -> None:
        """A child has its verdict; what has no parent is nobody's merit."""
        if parent is None:
            return
        arm, seconds = arm_of(record.candidate), max(record.evaluation.seconds, 0.0)
        gain, tokens = reward(record.speedup, parent.speedup), tokens_of(record.candidate)
        cost = 1.0
        if self._config.charge == "costs":
            cost = max(CHEAPEST, seconds + self._config.token_seconds * tokens)
        account = self._account(arm)
        account.tried += 1
        account.passed += record.passed
        account.gain += gain
        account.seconds += seconds
        account.tokens += tokens
        account.recent_tried += 1
        account.recent_gain += gain
        account.recent_cost += cost
        account.recent_top = max(account.recent_top, gain / cost)

    def _account(self, arm: str) -> _Account:
        return self._accounts.setdefault(arm, _Account())

    def miss(self, arm: str, count: int) -> None:
        """Requests of an arm that led to no candidate: tries without a gain, so that a silent policy loses its turn."""
        account = self._account(arm)
        account.recent_tried += count
        account.recent_cost += count * (1.0 if self._config.charge == "candidates" else CHEAPEST)

    def fade(self) -> None:
        """A generation ended: everything earned so far counts less."""
        for account in self._accounts.values():
            account.fade(self._config.decay)

    def divide(self, arms: Sequence[str], count: int) -> list[str]:
        """An arm for each of `count` places, of `arms` alone, each place to the one that promises most.

        Arms that earned something and are no longer offered (another list of operators or policies) get nothing.
        """
        known = {arm: self._accounts.get(arm, _Account()) for arm in arms}
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
