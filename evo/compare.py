"""Which of two runs was better, by how much, and whether that is more than noise.

The difference is the log ratio of the best candidates' speedups (of their latencies, where one has no baseline).
Its 95 % interval is made of

* measured: the intervals of both bests' ratios, or how far programs that both runs judged lie apart, whichever is
  wider; without intervals, the standard error of the median from the 20th and 80th percentile of the samples;
* modelled: the cost model's own error, read from the spread of its calibration. It is the same error for every
  workload of a kernel, so that more workloads do not make it smaller. A model without calibration has no interval.

One run of each kind says nothing about the luck of their random seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from evaluator.types import Evaluation, Timing, TimingKind
from evo.archive import qd_score
from evo.candidate import Record
from evo.compare_checks import kind_of, refuse_unlike, warnings_of
from evo.interval import Z95, mean_error, of_median, of_model, of_ratio, of_workloads
from evo.report.data import Stage, Verdict, stages, verdicts
from evo.run import Run, RunStatus

NEAR = 0.95
"""Share of the best at which a search counts as arrived."""

Quantity = Literal["speedup", "latency"]


@dataclass(frozen=True)
class Side:
    """One of the two runs."""

    run: Run
    status: RunStatus
    best: Record | None
    evaluations: int
    correct: int
    to_own: int | None
    """Evaluations until `NEAR` of the run's own best; None where nothing is correct."""
    to_best: int | None
    """Evaluations until `NEAR` of the better run's best; None where it was never reached."""
    cells: frozenset[str]
    """Cells of the archive that are held."""
    qd_score: float
    seconds: float
    stages: Sequence[Stage]
    verdicts: Sequence[Verdict]


@dataclass(frozen=True)
class Difference:
    """How far apart the best candidates are: `log_ratio` is ln(second/first), > 0 where the second is better."""

    quantity: Quantity
    log_ratio: float
    error: float | None
    """Standard deviation of `log_ratio`; None where nothing says how sure it is."""
    basis: str
    """What `error` was made of."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of second/first."""
        if self.error is None:
            return None
        return math.exp(self.log_ratio - Z95 * self.error), math.exp(self.log_ratio + Z95 * self.error)

    @property
    def exceeds_noise(self) -> bool | None:
        """Whether 1 lies outside the interval; None where there is no interval."""
        return None if self.error is None else abs(self.log_ratio) > Z95 * self.error


@dataclass(frozen=True)
class Comparison:
    """Everything that `kernevo compare` says."""

    sides: tuple[Side, Side]
    kind: TimingKind
    difference: Difference | None
    """None unless both runs hold a correct kernel."""
    shared: int
    """Programs that both runs judged correct, none of them from the cache."""
    warnings: Sequence[str]

    @property
    def better(self) -> Side | None:
        """The run with the better best candidate, noise or not; None where both are alike or hold none."""
        first, second = self.sides
        if self.difference is None:
            return first if first.best else second if second.best else None
        if self.difference.log_ratio == 0:
            return None
        return second if self.difference.log_ratio > 0 else first


def compare(first: Run, second: Run) -> Comparison:
    """Compare two runs. Raises UsageError, in one line, for runs that cannot be compared."""
    bests = (_fastest(first), _fastest(second))
    refuse_unlike((first, second), bests)
    held = [best for best in bests if best is not None]
    quantity: Quantity = "speedup" if all(best.speedup for best in held) else "latency"
    target = max((_value(best.evaluation, quantity) for best in held), default=0.0)
    sides = (_side(first, bests[0], quantity, target), _side(second, bests[1], quantity, target))
    shared = _shared(first, second, quantity)
    difference = None
    if bests[0] is not None and bests[1] is not None:
        difference = _difference(bests[0], bests[1], quantity, shared)
    return Comparison(sides, kind_of(first), difference, len(shared), warnings_of((first, second), bests))


def _fastest(run: Run) -> Record | None:
    """The first elite; where there is no baseline, the candidate of the lowest latency."""
    elites = run.elites()
    if all(record.speedup for record in elites):
        return next(iter(elites), None)
    return max(
        (record for record in run.records() if record.passed), key=lambda record: _value(record.evaluation, "latency")
    )


def _value(evaluation: Evaluation, quantity: Quantity) -> float:
    """What is compared, larger is better: the speedup, or calls per millisecond."""
    if quantity == "speedup":
        return evaluation.speedup or 0.0
    return 1 / evaluation.latency_ms if evaluation.latency_ms else 0.0


def _side(run: Run, best: Record | None, quantity: Quantity, target: float) -> Side:
    records = run.records()
    generations = run.generations()
    archive = generations[-1].archive if generations else {}
    owners = [run.record(owner) for owner in archive.values()]
    values = [_value(record.evaluation, quantity) for record in records]
    return Side(
        run=run,
        status=run.status,
        best=best,
        evaluations=len(records),
        correct=sum(record.passed for record in records),
        to_own=_first_at(values, NEAR * _value(best.evaluation, quantity)) if best else None,
        to_best=_first_at(values, NEAR * target) if best else None,
        cells=frozenset(archive),
        qd_score=qd_score(owners),
        seconds=generations[-1].seconds if generations else 0.0,
        stages=stages(record.evaluation for record in records),
        verdicts=verdicts(records),
    )


def _first_at(values: Iterable[float], wanted: float) -> int | None:
    return next((number for number, value in enumerate(values, start=1) if value >= wanted), None)


def _shared(first: Run, second: Run, quantity: Quantity) -> list[float]:
    """ln(second/first) of each program that both runs judged for themselves."""
    known = [
        {
            record.candidate.ast_hash: _value(record.evaluation, quantity)
            for record in run.records()
            if record.passed and not record.evaluation.cached
        }
        for run in (first, second)
    ]
    common = [program for program in known[0] if program in known[1]]
    pairs = [(known[0][program], known[1][program]) for program in common]
    return [math.log(two / one) for one, two in pairs if one > 0 and two > 0]


def _difference(first: Record, second: Record, quantity: Quantity, shared: Sequence[float]) -> Difference:
    one, two = first.evaluation, second.evaluation
    log_ratio = math.log(_value(two, quantity) / _value(one, quantity))
    if one.kind == "modelled":
        if first.candidate.ast_hash == second.candidate.ast_hash:
            return Difference(quantity, log_ratio, 0.0, "the same program: modelled latencies repeat exactly")
        return Difference(quantity, log_ratio, *_model_error(one, two))
    return Difference(quantity, log_ratio, *_measured_error(one, two, quantity, shared))


def _model_error(one: Evaluation, two: Evaluation) -> tuple[float | None, str]:
    errors = [mean_error(of_model(timing) for timing in judged.timings.values()) for judged in (one, two)]
    if errors[0] is None or errors[1] is None:
        return None, "the cost model is not calibrated for this GPU: nothing says how far it errs"
    return math.hypot(errors[0], errors[1]), "how far the cost model's calibration errs, independently for each kernel"


def _measured_error(
    one: Evaluation, two: Evaluation, quantity: Quantity, shared: Sequence[float]
) -> tuple[float | None, str]:
    read: Callable[[Timing], float | None] = of_ratio if quantity == "speedup" else of_median
    errors = [of_workloads([read(timing) for timing in judged.timings.values()]) for judged in (one, two)]
    repeats = math.sqrt(sum(gap * gap for gap in shared) / len(shared)) if shared else 0.0
    if errors[0] is None or errors[1] is None:
        return (
            (repeats, _again(shared)) if shared else (None, "the evaluations have no spread, and no program is shared")
        )
    sampled = math.hypot(errors[0], errors[1])
    return (repeats, _again(shared)) if repeats > sampled else (sampled, "the intervals of both best kernels' timings")


def _again(shared: Sequence[float]) -> str:
    programs = "one program" if len(shared) == 1 else f"{len(shared)} programs"
    return f"how far apart the runs measured {programs} that both judged"
