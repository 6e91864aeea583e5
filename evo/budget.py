"""When a campaign stops, and why."""

from __future__ import annotations

from dataclasses import dataclass

from evaluator.types import Evaluation, geometric_mean
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


# key of the budget -> what it limits; the first that is reached stops the run
STOPPERS = {
    "target_speedup": "best_speedup",
    "roofline_share": "roofline_share",
    "evaluations": "evaluations",
    "generations": "generations",
    "seconds": "seconds",
    "gpu_seconds": "gpu_seconds",
    "tokens": "tokens",
    "dollars": "dollars",
    "stagnation": "generations_without_gain",
}


def reason_to_stop(budget: BudgetConfig, progress: Progress) -> str | None:
    """The name of the first stopper that fires, None while none does."""
    for name, reached in STOPPERS.items():
        limit, value = getattr(budget, name), getattr(progress, reached)
        if limit is not None and value is not None and value >= limit:
            return name
    return None


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
    return geometric_mean(shares)
