"""Numbers out of raw samples: latency, its spread, and the ratio to a baseline with an interval.

The ratio. The clocks of a GPU move while it is measured (a power cap takes a third off an H200's), so the ratio of two
overall medians is wrong as soon as the two models met different clocks. Blocks that were taken next to each other met
the same clocks: each such pair gives one log(baseline/candidate) of block medians, in which a drift common to both
cancels. Because the order alternates (ABBA), what a drift within a pair leaves has alternating sign.

The estimate is the Hodges-Lehmann median of pairwise means of these logs, its interval inverts Wilcoxon's signed-rank
test (Hollander, Wolfe, Chicken: Nonparametric Statistical Methods, 3rd ed., section 3.2 and 3.3). It needs symmetric
logs and nothing else, which differences of two similar noises are, and up to 29 % of the pairs may be wild without
carrying it away. A 95 % interval needs at least six pairs; with fewer there is none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from evaluator.samples import Block, Samples
from evaluator.types import Frozen

LEAST_PAIRS = 6
CONFIDENCE = 0.95
_EXACT_PAIRS = 50
_MAX_PAIRS = 1500
_FAR_OUT = 3.0
_LEAST_SPREAD = 0.01

Floats = npt.NDArray[np.float64]


class Summary(Frozen):
    """One workload's latency per call and its ratio to the baseline."""

    median_ms: float
    p20_ms: float
    p80_ms: float
    mean_ms: float
    """Of all samples; a mean far above the median shows outliers."""
    rel_std: float
    """Standard deviation / mean of the samples that are not far out."""
    outliers: int
    """Samples that are far out."""
    samples: int
    wall_ms: float
    """Median host milliseconds that a call took to return."""
    baseline_ms: float | None = None
    """Median of the baseline's samples."""
    ratio: float | None = None
    """baseline / candidate from paired blocks; > 1 is faster than the baseline."""
    ratio_low: float | None = None
    """Lower end of the ratio's 95 % interval; None with fewer than six pairs."""
    ratio_high: float | None = None


def summarise(samples: Samples) -> Summary:
    """The summary of checked samples (see `evaluator.samples`)."""
    ms = _all_ms(samples.candidate)
    kept = _within_fences(ms)
    p20, median, p80 = (float(value) for value in np.quantile(ms, (0.2, 0.5, 0.8)))
    alone = Summary(
        median_ms=median,
        p20_ms=p20,
        p80_ms=p80,
        mean_ms=float(ms.mean()),
        rel_std=relative_spread(ms),
        outliers=len(ms) - len(kept),
        samples=len(ms),
        wall_ms=float(np.median([block.call_s for block in samples.candidate])) * 1e3,
    )
    if not samples.baseline:
        return alone
    low, ratio, high = ratio_interval(samples.candidate, samples.baseline)
    return alone.model_copy(
        update={
            "baseline_ms": float(np.median(_all_ms(samples.baseline))),
            "ratio": ratio,
            "ratio_low": low,
            "ratio_high": high,
        }
    )


def relative_spread(ms: Sequence[float] | Floats) -> float:
    """Standard deviation / mean of the samples that are not far out; 0 for a single sample."""
    kept = _within_fences(np.asarray(ms, dtype=np.float64))
    return float(kept.std(ddof=1) / kept.mean()) if len(kept) > 1 else 0.0


def ratio_interval(candidate: Sequence[Block], baseline: Sequence[Block]) -> tuple[float | None, float, float | None]:
    """(low, estimate, high) of baseline / candidate from blocks taken in pairs; no ends with fewer than six pairs."""
    pairs = [
        math.log(float(np.median(b.ms)) / float(np.median(a.ms))) for a, b in zip(candidate, baseline, strict=True)
    ]
    logs = np.asarray(pairs, dtype=np.float64)
    if len(logs) > _MAX_PAIRS:  # the means of all pairs need memory that grows with the square
        logs = np.asarray([part.mean() for part in np.array_split(logs, _MAX_PAIRS)])
    rows, columns = np.triu_indices(len(logs))
    means = np.sort((logs[rows] + logs[columns]) / 2)
    estimate = math.exp(float(np.median(means)))
    if len(logs) < LEAST_PAIRS:
        return None, estimate, None
    outside = signed_rank_quantile(len(logs), (1 - CONFIDENCE) / 2)
    return math.exp(means[outside]), estimate, math.exp(means[-1 - outside])


def signed_rank_quantile(count: int, tail: float) -> int:
    """The largest c with P(T <= c) <= `tail` for the signed-rank statistic T of `count` values, -1 if there is none.

    So many pairwise means lie outside of an interval at either end. Exact up to 50 values, normal approximation beyond.
    """
    if count > _EXACT_PAIRS:
        mean, variance = count * (count + 1) / 4, count * (count + 1) * (2 * count + 1) / 24
        return math.floor(mean + NormalDist().inv_cdf(tail) * math.sqrt(variance))
    ways = np.zeros(count * (count + 1) // 2 + 1)
    ways[0] = 1.0
    for rank in range(1, count + 1):
        ways[rank:] = ways[rank:] + ways[: len(ways) - rank]
    below = np.cumsum(ways) / 2.0**count
    return int(np.searchsorted(below, tail, side="right")) - 1


def _all_ms(blocks: Sequence[Block]) -> Floats:
    return np.asarray([ms for block in blocks for ms in block.ms], dtype=np.float64)


def _within_fences(ms: Floats) -> Floats:
    """Samples inside of Tukey's outer fences, three interquartile ranges beyond the quartiles (Exploratory Data
    Analysis, 1977). The range is taken as 1 % of the median at least, since events come in steps."""
    low, median, high = np.quantile(ms, (0.25, 0.5, 0.75))
    reach = _FAR_OUT * max(high - low, _LEAST_SPREAD * median)
    reach *= 1 + 1e-9  # a sample on the fence stays on its side of it in every unit of time
    kept: Floats = ms[(ms >= low - reach) & (ms <= high + reach)]
    return kept
