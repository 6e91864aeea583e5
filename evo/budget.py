"""When a campaign stops, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from evo.config import BudgetConfig


@dataclass(frozen=True)
class Progress:
    """What the stoppers look at."""

    evaluations: int
    generations: int
    seconds: float
    best_speedup: float | None
    generations_without_gain: int


def _evaluations(budget: BudgetConfig, progress: Progress) -> bool:
    return budget.evaluations is not None and progress.evaluations >= budget.evaluations


def _generations(budget: BudgetConfig, progress: Progress) -> bool:
    return budget.generations is not None and progress.generations >= budget.generations


def _seconds(budget: BudgetConfig, progress: Progress) -> bool:
    return budget.seconds is not None and progress.seconds >= budget.seconds


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
    "evaluations": _evaluations,
    "generations": _generations,
    "seconds": _seconds,
    "stagnation": _stagnation,
}


def reason_to_stop(budget: BudgetConfig, progress: Progress) -> str | None:
    """The name of the first stopper that fires, None while none does."""
    return next((name for name, fires in STOPPERS.items() if fires(budget, progress)), None)
