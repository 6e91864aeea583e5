"""Which sampled answers training leaves out: those whose kernel hardly ran (PRS), those off the policy (MRS).

Logprobs are natural logarithms, one for each token of the answer. Pure functions; the caller draws random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PRS_FLOOR = 0.3
"""Coverage up to which a correct turn is never kept."""
PRS_WIDTH = 0.1
"""Coverage above the floor over which the probability rises from 0 to 1."""
MRS_FLOOR = 1e-3
"""Smallest half-width of the band of sequence weights."""
MRS_SIGMAS = 3.0
MRS_VETO = 1e-4
"""A token ratio below this rejects its whole sequence."""
LARGEST_EXPONENT = 709.0
"""e to more than this is no double."""


def prs_probability(coverage: float | None) -> float:
    """clip((coverage - 0.3) / 0.1, 0, 1): the probability with which a *correct* turn is kept.

    Coverage is the kernel's own share of all device time, in [0, 1]. None, which nobody measured, speaks against
    nobody: 1. Source: profiling-based rejection sampling of Dr. Kernel, docs/learning.md.
    """
    if coverage is None:
        return 1.0
    return min(1.0, max(0.0, (coverage - PRS_FLOOR) / PRS_WIDTH))


def prs_keeps(correct: bool, coverage: float | None, draw: float) -> bool:
    """Whether PRS keeps a turn; `draw` is uniform in [0, 1). Incorrect turns are always kept: they teach what fails."""
    return not correct or draw < prs_probability(coverage)


def mrs_weight(train_logprobs: Sequence[float], sample_logprobs: Sequence[float]) -> float:
    """w = exp(mean_t log(pi_train / pi_sample)): the geometric mean of a sequence's token ratios.

    Raises ValueError for no tokens or unequal lengths. Source: mismatch rejection sampling of Dr. Kernel,
    docs/learning.md.
    """
    mean = float(_log_ratios(train_logprobs, sample_logprobs).mean())
    return math.exp(mean) if mean < LARGEST_EXPONENT else math.inf


def mrs_half_width(sigma: float, tokens: int) -> float:
    """h = max(1e-3, 3·sigma / sqrt(T)): sequences are kept with w in [1 - h, 1 + h].

    The mean of T ratios scatters by sigma / sqrt(T), so short answers get a wider band. Source: as `mrs_weight`.
    """
    if tokens < 1:
        raise ValueError(f"a sequence of {tokens} tokens has no weight")
    return max(MRS_FLOOR, MRS_SIGMAS * sigma / math.sqrt(tokens))


def mrs_sigma(train_logprobs: Sequence[Sequence[float]], sample_logprobs: Sequence[Sequence[float]]) -> float:
    """The standard deviation of log(pi_train / pi_sample) over all tokens of all sequences, taken at step 0.

    Before the first update both are one model, so all scatter is that of the two implementations.
    """
    ratios = [_log_ratios(*pair) for pair in zip(train_logprobs, sample_logprobs, strict=True)]
    return float(np.concatenate(ratios).std()) if ratios else 0.0


def mrs_vetoes(train_logprobs: Sequence[float], sample_logprobs: Sequence[float]) -> bool:
    """Whether any token's ratio is below 1e-4: the sampler drew what the trained model all but excludes."""
    return bool(_log_ratios(train_logprobs, sample_logprobs).min() < math.log(MRS_VETO))


def mrs_keeps(train_logprobs: Sequence[float], sample_logprobs: Sequence[float], sigma: float) -> bool:
    """Whether MRS keeps a sequence: its weight lies in the band and no token vetoes it."""
    if mrs_vetoes(train_logprobs, sample_logprobs):
        return False
    weight = mrs_weight(train_logprobs, sample_logprobs)
    return abs(weight - 1) <= mrs_half_width(sigma, len(sample_logprobs))


def _log_ratios(train_logprobs: Sequence[float], sample_logprobs: Sequence[float]) -> Array:
    train, sample = (np.asarray(found, dtype=np.float64) for found in (train_logprobs, sample_logprobs))
    if train.shape != sample.shape or train.ndim != 1 or not len(train):
        raise ValueError(f"{train.size} training logprobs but {sample.size} sampling logprobs; both need one a token")
    return np.asarray(train - sample, dtype=np.float64)
