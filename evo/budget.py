"""When a campaign stops, and why."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from evaluator.types import Evaluation
from evo.config_budget import BudgetConfig


@dataclass(frozen=True)
class Progress:
    """What the stoppers look at."""

    evaluations: int
    generations: int
    seconds: float
    best_speedup: float | None
    generations_without_gain: int
    gpu_seconds: float = 0.0
    tokens: int = 0
    dollars: float = 0.0
    roofline_share: float | None = None
    """Speed of light / latency of the best; None without a speed of light."""


def _evaluations(budget: BudgetConfig, progress: Progress) -> bool:
    return budget.evaluations is not None and progress.evaluations >= budget.evaluations


def _generations(budget: BudgetConfig, progress: Progress) -> bool:
    return budget.generations is not None and progress.generations >= budget.generations


def _seconds(budget: BudgetConfig, progress: Progress) -> bool:
    return budget.seconds is not None and progress.seconds >= budget.seconds


def _gpu_seconds(budget: BudgetConfig, progress: Progress) -> bool:
    return budget.gpu_seconds is not None and progress.gpu_seconds >= budget.gpu_seconds


def _tokens(budget: BudgetConfig, progress: Progress) -> bool:
    return budget.tokens is not None and progress.tokens >= budget.tokens


def _dollars(budget: BudgetConfig, progress: Progress) -> bool:
    return budget.dollars is not None and progress.dollars >= budget.dollars


def _roofline(budget: BudgetConfig, progress: Progress) -> bool:
    return (
        budget.roofline_share is not None
        and progress.roofline_share is not None
        and progress.roofline_share >= budget.roofline_share
    )


def _target(budget: BudgetConfig, progress: Progress) -> bool:
    return (
        budget.target_speedup is not None
        and progress.best_speedup is not None
        and progress.best_speedup >= budget.target_speedup
    )


def _stagnation(budget: BudgetConfig, progress: Progress) -> bool:
    return budget.stagnation is not None and progress.generations_without_gain >= budget.stagnation


STOPPERS: dict[str, Callable[[BudgetConfig, Progress], bool]] = {
    "target_speedup": _target,
    "roofline_share": _roofline,
    "evaluations": _evaluations,
    "generations": _generations,
    "seconds": _seconds,
    "gpu_seconds": _gpu_seconds,
    "tokens": _tokens,
    "dollars": _dollars,
    "stagnation": _stagnation,
}


def reason_to_stop(budget: BudgetConfig, progress: Progress) -> str | None:
    """The name of the first stopper that fires, None while none does."""
    return next((name for name, fires in STOPPERS.items() if fires(budget, progress)), None)


def batch_size(budget: BudgetConfig, wanted: int, generation: int, known: int) -> int:
    """Candidates of a generation when `known` are judged or being judged; 0 behind the end of the budget."""
    if budget.generations is not None and generation >= budget.generations:
        return 0
    return wanted if budget.evaluations is None else min(wanted, budget.evaluations - known)


def roofline_share(evaluation: Evaluation) -> float | None:
    """Geometric mean over workloads of speed of light / latency; None unless every workload has a speed of light."""
    shares = [(timing.speed_of_light_ms or 0.0) / timing.median_ms for timing in evaluation.timings.values()]
    if not shares or min(shares) <= 0:
        return None
    return math.exp(math.fsum(map(math.log, shares)) / len(shares))
