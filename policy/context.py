"""Which earlier attempts a prompt shows.

Prompts show the best attempts by reward. A seeded tenth of them shows nothing instead and another tenth a broken kernel
with its error, so that a policy that learns from its prompts also meets the first turn and the repair of a failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from evaluator.errors import UsageError
from evaluator.source_hash import ast_hash
from evaluator.types import EvalStatus, Evaluation
from policy.quality import quality_of
from policy.reward import RewardSettings, input_of, reward_of
from policy.types import ParentView, ProposalRequest

WIDTH = 4
"""Attempts that a prompt shows."""
NOTHING_SHARE = 0.1
"""Share of prompts that show no attempt."""
BROKEN_SHARE = 0.1
"""Share of prompts that show one broken kernel."""

# Keeps these draws apart from what policies draw of the same seed.
_STREAM = 0x636F6E74

Scored = tuple[ParentView, str, float]
"""An attempt, the hash of its program, and what it earns."""


class Context:
    """Chooses what prompts show, at most `width` attempts of each request's own and of those it is given beside them.

    Remembers what attempts earn, as there may be thousands. For one thread at a time. Raises UsageError for a `width`
    below 0.
    """

    def __init__(self, width: int = WIDTH, reward: RewardSettings | None = None) -> None:
        if width < 0:
            raise UsageError(f"width is {width}", "use 0 or more")
        self._width = width
        self._reward = reward
        self._earned: dict[int, Scored] = {}

    def of(self, request: ProposalRequest, stored: Sequence[ParentView] = ()) -> ProposalRequest:
        """The request with those attempts alone that its prompt shows, best first.

        Nothing, one broken kernel, or the best: drawn from the request's seed alone.
        """
        known = [(view, *_scored(view, self._reward)) for view in request.attempts if view.evaluation is not None]
        known += [(view, *self._remembered(view)) for view in stored if view.evaluation is not None]
        return request.model_copy(update={"attempts": self._shown(request, known)})

    def forget(self) -> None:
        """Drop what is remembered of attempts."""
        self._earned.clear()

    def _shown(self, request: ProposalRequest, known: Iterable[Scored]) -> tuple[ParentView, ...]:
        rng = np.random.default_rng([request.seed, _STREAM])
        draw = rng.random()
        if draw < NOTHING_SHARE:
            return ()
        ranked = _ranked(request, known)
        broken = [view for view in ranked if _is_broken(view)]
        if draw < NOTHING_SHARE + BROKEN_SHARE and broken and self._width > 0:
            return (broken[int(rng.integers(len(broken)))],)
        return tuple(ranked[: self._width])

    def _remembered(self, view: ParentView) -> tuple[str, float]:
        # By identity, as a hash would cost as much as the score. Holding the view keeps its id from being used again.
        known = self._earned.get(id(view))
        if known is None:
            known = self._earned[id(view)] = (view, *_scored(view, self._reward))
        return known[1:]


def _scored(view: ParentView, reward: RewardSettings | None) -> tuple[str, float]:
    """The program of a judged attempt, and what it earns."""
    assert view.evaluation is not None
    quality = quality_of(view.source.text).total
    return ast_hash(view.source.text), reward_of(input_of(view.evaluation, quality=quality), reward).total


def _ranked(request: ProposalRequest, known: Iterable[Scored]) -> list[ParentView]:
    """Attempts that tell something, each program once, by falling reward; of equal ones the earlier first."""
    parents = {ast_hash(view.source.text) for view in request.parents}
    parent = request.parents[0].evaluation
    best: dict[str, tuple[float, ParentView]] = {}
    for view, program, total in known:
        if program in parents or not _comparable(view, parent):
            continue
        if program not in best or total > best[program][0]:
            best[program] = (total, view)
    return [view for _, view in sorted(best.values(), key=lambda pair: -pair[0])]


def _comparable(view: ParentView, parent: Evaluation | None) -> bool:
    """Whether a verdict says something about its kernel, and no latency stands beside one of another kind or GPU."""
    evaluation = view.evaluation
    assert evaluation is not None
    if evaluation.status.blames_harness or evaluation.status is EvalStatus.DUPLICATE:
        return False
    if parent is None or None in (evaluation.kind, parent.kind):
        return True
    return (evaluation.kind, evaluation.target) == (parent.kind, parent.target)


def _is_broken(view: ParentView) -> bool:
    """Failed without cheating: what a policy can learn to mend."""
    assert view.evaluation is not None
    return not view.evaluation.status.passed and not view.evaluation.status.is_hack
