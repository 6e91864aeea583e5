"""What a monitor is told, and the fan-out that keeps a failing one from hurting the run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pydantic import Field

from evaluator.types import Frozen, TimingKind
from evo.asking import Span
from evo.bandit import Credit
from evo.candidate import Record
from evo.events import Finalists, IslandEnd


class Step(Frozen):
    """One generation's numbers."""

    generation: int
    evaluations: int
    budget_evaluations: int | None
    seconds: float
    """Wall-clock seconds of the run so far, earlier sessions included."""
    batch: int
    passed: int
    """Of this batch."""
    verdicts: Mapping[str, int]
    """Counts of this batch by status."""
    operators: Mapping[str, int]
    best: str | None
    best_speedup: float | None
    best_latency_ms: float | None
    timing_kind: TimingKind | None
    population_median: float | None
    """Median of the first objective over the survivors (log speedup; failures lie below -19)."""
    structures: int
    cells: int
    qd_score: float
    coverage: float = 0.0
    """Share of the archive's possible cells that have an owner."""
    cached: int
    """Verdicts of this batch that came from the cache."""
    policy_seconds: float = 0.0
    """Time the campaign stood still for the proposals of this batch."""
    policy_asked: int = 0
    """Requests to the policy for this batch."""
    policy_answered: int = 0
    """Of these, requests with at least one proposal."""
    policy_spans: tuple[Span, ...] = ()
    """When each round of requests for this batch was sent and when the last of its answers was there."""
    islands: tuple[IslandEnd, ...] = ()
    """Where there are several."""
    credits: Mapping[str, Credit] = Field(default_factory=dict)
    """Operator and policy -> what its candidates earned in the run so far."""
    pareto: Mapping[str, Mapping[str, float | None]] = Field(default_factory=dict)
    """Candidate -> what it takes, for those that no other dominates; null is what its judge did not say."""
    judge_span: Span | None = None
    """When judging this batch began and ended, in this session."""


class Monitor(Protocol):
    """One sink of progress."""

    def candidate(self, record: Record) -> None:
        """One candidate was judged and recorded."""
        ...

    def step(self, step: Step) -> None:
        """One generation ended."""
        ...

    def policy(self, summary: Mapping[str, Any]) -> None:
        """The session ends: what the policy asked and what came of it, for a policy that keeps count."""
        ...

    def finalists(self, finalists: Finalists) -> None:
        """The best were timed again."""
        ...

    def close(self) -> None:
        """The session ends; safe to call twice."""
        ...


class Monitors:
    """Tells every monitor; drops one that raises."""

    def __init__(self, monitors: Sequence[Monitor]) -> None:
        self._monitors = list(monitors)

    def candidate(self, record: Record) -> None:
        """One candidate was judged and recorded."""
        self._each(lambda monitor: monitor.candidate(record))

    def step(self, step: Step) -> None:
        """One generation ended."""
        self._each(lambda monitor: monitor.step(step))

    def policy(self, summary: Mapping[str, Any]) -> None:
        """What the policy asked in this session and what came of it."""
        self._each(lambda monitor: monitor.policy(summary))

    def finalists(self, finalists: Finalists) -> None:
        """The best were timed again."""
        self._each(lambda monitor: monitor.finalists(finalists))

    def close(self) -> None:
        """The session ends."""
        self._each(lambda monitor: monitor.close())

    def _each(self, call: Callable[[Monitor], None]) -> None:
        for monitor in list(self._monitors):
            try:
                call(monitor)
            except Exception as error:  # whatever a sink raises, the campaign outlives it
                self._monitors.remove(monitor)
                warnings.warn(
                    f"{getattr(monitor, 'name', type(monitor).__name__)} failed and is switched off: {error}",
                    RuntimeWarning,
                    stacklevel=3,
                )
