"""How sure a speedup is: standard deviations of its logarithm, read from the judge's timings.

Measured ones come from the interval of the ratio, or else from the spread of the samples; modelled ones from how far
the cost model's calibration errs, which is the same error for every workload of a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from evaluator.types import Evaluation, Timing

Z95 = 1.959964
"""Half the width of a 95 % interval in standard deviations."""
Z80 = 1.281552
"""Half the width of an 80 % interval: that of the cost model's spread."""
Z60 = 0.841621
"""Half the distance from the 20th to the 80th percentile."""
MEDIAN_ERROR = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, for normal samples."""


def speedup_interval(evaluation: Evaluation) -> tuple[float, float] | None:
    """95 % interval of the speedup; None where nothing says how sure it is."""
    speedup, timings = evaluation.speedup, list(evaluation.timings.values())
    if speedup is None or not math.isfinite(speedup):
        return None
    if evaluation.kind == "modelled":
        one = mean_error(of_model(timing) for timing in timings)
        error = None if one is None else math.sqrt(2) * one  # the baseline is modelled as well
    else:
        error = of_workloads([of_ratio(timing) for timing in timings])
    if error is None or not math.isfinite(error):
        return None
    return speedup * math.exp(-Z95 * error), speedup * math.exp(Z95 * error)


def of_model(timing: Timing) -> float | None:
    """Of a modelled latency; None where the model is not calibrated."""
    low, high = timing.spread_low, timing.spread_high
    return None if low is None or high is None else math.log(high / low) / (2 * Z80)


def of_ratio(timing: Timing) -> float | None:
    """Of a measured speedup: from its interval, or else from the samples."""
    low, high = timing.ratio_low, timing.ratio_high
    return math.log(high / low) / (2 * Z95) if low and high else of_median(timing)


def of_median(timing: Timing) -> float | None:
    """Of a measured latency; None without samples enough to tell."""
    if not timing.p20_ms or not timing.p80_ms or timing.samples < 2:
        return None
    return MEDIAN_ERROR * math.log(timing.p80_ms / timing.p20_ms) / (2 * Z60) / math.sqrt(timing.samples)


def of_workloads(errors: Sequence[float | None]) -> float | None:
    """Of the mean over workloads, whose samples have nothing to do with each other."""
    known = [error for error in errors if error is not None]
    return math.sqrt(sum(error * error for error in known)) / len(known) if len(known) == len(errors) > 0 else None


def mean_error(errors: Iterable[float | None]) -> float | None:
    """Of the mean over workloads that share one error; None unless all are known."""
    given = list(errors)
    known = [error for error in given if error is not None]
    return sum(known) / len(known) if len(known) == len(given) > 0 else None
