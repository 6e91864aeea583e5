"""What monitors are told of a generation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from evo.asking import Asked, Span
from evo.candidate import Record
from evo.events import GenerationEnd
from evo.measures import coverage
from evo.monitors import Step
from evo.scheduler import Scheduler


@dataclass(frozen=True)
class Generation:
    """What the campaign alone knows of a generation that ended."""

    summary: GenerationEnd
    batch: Sequence[Record]
    asked: Asked
    judged: Span
    """When judging it began and ended."""
    budget_evaluations: int | None


def step_of(scheduler: Scheduler, known: Generation) -> Step:
    """The generation's numbers."""
    best, summary, batch, asked = scheduler.best, known.summary, known.batch, known.asked
    return Step(
        generation=summary.generation,
        evaluations=summary.evaluations,
        budget_evaluations=known.budget_evaluations,
        seconds=summary.seconds,
        batch=len(batch),
        passed=sum(record.passed for record in batch),
        verdicts=Counter(str(record.evaluation.status) for record in batch),
        operators=Counter(record.candidate.operator for record in batch),
        best=summary.best,
        best_speedup=summary.best_speedup,
        best_latency_ms=best.evaluation.latency_ms if best else None,
        timing_kind=best.evaluation.kind if best else None,
        pareto=scheduler.pareto,
        population_median=scheduler.islands.median,
        structures=len(scheduler.tuner.structures),
        cells=len(scheduler.archive),
        coverage=coverage(cell for cell, _ in scheduler.archive),
        qd_score=scheduler.archive.qd_score,
        islands=summary.islands,
        credits=scheduler.bandit.credits,
        cached=sum(record.evaluation.cached for record in batch),
        policy_seconds=asked.seconds,
        policy_asked=asked.requests,
        policy_answered=asked.answered,
        policy_spans=asked.spans,
        judge_span=known.judged,
    )
