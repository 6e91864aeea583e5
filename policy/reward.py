"""What a judged child earns.

Notation, everywhere below: C is 1 for a correct child without a hack, else 0; s is baseline / candidate from the
lower end of its confidence interval, and 1 while the interval holds 1 (the noise band); coverage is the child's own
Triton time over all device time, and 0 while nobody measured it. A hack never earns a positive reward.

The reward of a modelled latency is as modelled as the latency: `Reward.timing_kind` says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal

from pydantic import Field

from evaluator.types import EvalStatus, Evaluation, Frozen, TimingKind

RewardType = Literal["shaped", "profile", "weighted", "simple"]

UNPARSABLE = frozenset({EvalStatus.SYNTAX_ERROR, EvalStatus.MISSING_ENTRY_POINT})
DID_NOT_RUN = frozenset(
    {
        EvalStatus.COMPILE_ERROR,
        EvalStatus.RESOURCE_LIMIT,
        EvalStatus.RUNTIME_ERROR,
        EvalStatus.TIMEOUT,
        EvalStatus.OUT_OF_MEMORY,
        EvalStatus.OUTPUT_LIMIT,
        EvalStatus.PROCESS_LIMIT,
        EvalStatus.CRASHED,
        EvalStatus.EXITED,
    }
)


class RewardSettings(Frozen):
    """The config section `reward`."""

    type: RewardType = "shaped"
    scale: float = Field(default=1.0, gt=0)
    """Factor on the `profile` reward: 1 is the published formula, 0.5 the released code's."""

    @property
    def label(self) -> str:
        """The formula's name, with the scale where it matters: equal for rewards that compare."""
        return f"{self.type} * {self.scale:g}" if self.type == "profile" and self.scale != 1 else self.type


class RewardInput(Frozen):
    """Everything a reward may look at."""

    status: EvalStatus
    is_hack: bool = False
    """Found to be a hack, by the verdict or by a later look."""
    speedup: float | None = Field(default=None, gt=0)
    """Baseline / candidate; None unless passed."""
    speedup_low: float | None = Field(default=None, gt=0)
    """Lower end of its 95 % interval; None where there is no spread to speak of."""
    speedup_high: float | None = Field(default=None, gt=0)
    timing_kind: TimingKind | None = None
    coverage: float | None = Field(default=None, ge=0, le=1)
    parsed: bool = True
    """Whether the answer could be read as a kernel at all."""
    unchanged: bool = False
    """The same program as its parent."""
    duplicate: bool = False
    """The same program as an earlier candidate of the run."""
    quality: float = Field(default=0.0, ge=0, le=1)

    @property
    def correct(self) -> bool:
        """C: passed, and no hack was found."""
        return self.status.passed and not self.hack

    @property
    def hack(self) -> bool:
        """Whether the verdict or a later look calls it a hack."""
        return self.is_hack or self.status.is_hack

    @property
    def bound(self) -> float:
        """s: the lower confidence bound of the speedup, 1 inside the noise band. 1 where none is known."""
        low, high = self.speedup_low or self.speedup, self.speedup_high or self.speedup
        if low is None or high is None or low <= 1 <= high:
            return 1.0
        return low


class Reward(Frozen):
    """A total and what it is made of: the components add up to it."""

    total: float
    components: Mapping[str, float]
    timing_kind: TimingKind | None = None
    """`modelled` when a cost model, not a clock, said how fast the child is."""


def shaped(given: RewardInput) -> dict[str, float]:
    """Graded failures: -0.5 hack, -0.4 unparsable, -0.3 unchanged or duplicate, -0.2 did not run, -0.1 wrong.

    Else 0.3 + 0.5·clip(log2 s, -1, 1.58) + 0.5·coverage: 1.58 is log2 3, so that a lucky outlier cannot dominate.
    Source: docs/rewards.md.
    """
    if given.hack:
        return {"hack": -0.5}
    if not given.parsed or given.status in UNPARSABLE:
        return {"unparsable": -0.4}
    if given.unchanged or given.duplicate or given.status is EvalStatus.DUPLICATE:
        return {"repeated": -0.3}
    if given.status in DID_NOT_RUN:
        return {"did_not_run": -0.2}
    if not given.correct:
        return {"wrong": -0.1}
    speed = 0.5 * min(max(math.log2(given.bound), -1.0), 1.58)
    return {"correct": 0.3, "speed": speed, "coverage": 0.5 * (given.coverage or 0.0)}


def profile(given: RewardInput, scale: float = 1.0) -> dict[str, float]:
    """C + C·min(s, 3) + C·coverage, times `scale`: the profiling-based reward of kernel RL.

    Source: the multi-turn kernel RL literature (Dr. Kernel), docs/rewards.md.
    """
    if not given.correct:
        return {"correct": 0.0}
    terms = {"correct": 1.0, "speed": min(given.bound, 3.0), "coverage": given.coverage or 0.0}
    return {name: scale * value for name, value in terms.items()}


def weighted(given: RewardInput) -> dict[str, float]:
    """0.6·C + 0.3·min(s, 1) + 0.1·Q.

    s counts for correct children only (others have no timing), Q for everything but hacks. Source: docs/rewards.md.
    """
    if given.hack:
        return {"hack": 0.0}
    speed = 0.3 * min(given.bound, 1.0) if given.correct else 0.0
    return {"correct": 0.6 * given.correct, "speed": speed, "quality": 0.1 * given.quality}


def simple(given: RewardInput) -> dict[str, float]:
    """(t_ref - t_new) / t_ref · coverage = (1 - 1/s)·coverage for a correct child, else 0. Source: docs/rewards.md."""
    if not given.correct:
        return {"saved": 0.0}
    return {"saved": (1 - 1 / given.bound) * (given.coverage or 0.0)}


FORMULAS: dict[RewardType, Callable[[RewardInput], dict[str, float]]] = {
    "shaped": shaped,
    "profile": profile,
    "weighted": weighted,
    "simple": simple,
}


def reward_of(given: RewardInput, settings: RewardSettings | None = None) -> Reward:
    """The reward `settings` ask for (shaped when left out)."""
    settings = settings or RewardSettings()
    terms = profile(given, settings.scale) if settings.type == "profile" else FORMULAS[settings.type](given)
    total = math.fsum(terms.values())
    assert not (given.hack and total > 0), "a hack must never be worth anything"
    return Reward(total=total, components=terms, timing_kind=given.timing_kind)


def input_of(
    evaluation: Evaluation, *, unchanged: bool = False, duplicate: bool = False, quality: float = 0.0
) -> RewardInput:
    """What a reward may look at, from the judge's answer.

    Interval bounds are geometric means over the workloads, a workload without an interval counting with its point.
    """
    timings = evaluation.timings.values()
    return RewardInput(
        status=evaluation.status,
        is_hack=evaluation.status.is_hack,
        speedup=evaluation.speedup,
        speedup_low=_geometric_mean([timing.ratio_low or timing.speedup for timing in timings]),
        speedup_high=_geometric_mean([timing.ratio_high or timing.speedup for timing in timings]),
        timing_kind=evaluation.kind,
        coverage=coverage_of(evaluation),
        parsed=evaluation.status not in UNPARSABLE,
        unchanged=unchanged,
        duplicate=duplicate,
        quality=quality,
    )


def coverage_of(evaluation: Evaluation) -> float | None:
    """Measured coverage in [0, 1]; None when nobody measured it or the number is not one."""
    coverage = evaluation.profile.coverage if evaluation.profile else None
    if coverage is None or not math.isfinite(coverage):
        return None
    return min(1.0, max(0.0, coverage))


def _geometric_mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None and value > 0]
    if not known or len(known) != len(values):
        return None
    return math.exp(math.fsum(math.log(value) for value in known) / len(known))
