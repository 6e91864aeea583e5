"""A generation as named numbers, for sinks that draw curves."""

from __future__ import annotations

import math
from collections.abc import Mapping

from evo.events import Finalists
from evo.monitors.base import Step

_PLAIN = (
    "seconds",
    "best_latency_ms",
    "population_median",
    "structures",
    "cells",
    "qd_score",
    "coverage",
    "cached",
    "policy_seconds",
)


def scalars_of(step: Step) -> dict[str, float]:
    """What there is to draw, by name; numbers that are none are left out. A speedup says its kind in its name."""
    found: dict[str, float | None] = {name: getattr(step, name) for name in _PLAIN}
    found[f"best_speedup_{step.timing_kind or 'none'}"] = step.best_speedup
    found["passed_share"] = step.passed / step.batch if step.batch else None
    found |= {f"verdicts/{name}": count for name, count in step.verdicts.items()}
    found |= {f"operators/{name}": count for name, count in step.operators.items()}
    found |= {f"gain/{name}": credit.gain for name, credit in step.credits.items()}
    found |= {f"islands/{number}": island.best_speedup for number, island in enumerate(step.islands)}
    return finite(found)


def scalars_of_finalists(finalists: Finalists) -> dict[str, float]:
    """What came of timing the best again."""
    return finite({"finalists/best_speedup": finalists.best_speedup, "finalists/best_before": finalists.best_before})


def finite(numbers: Mapping[str, float | None]) -> dict[str, float]:
    """Those that can be drawn."""
    return {name: float(value) for name, value in numbers.items() if value is not None and math.isfinite(value)}
