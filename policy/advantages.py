"""How much better than its group an answer did: one function for each estimator.

All take rewards with the group each belongs to and return one advantage for each reward, in the same order. A group
of one has nothing to compare with and gets 0. Rewards that are no finite numbers, or as many groups as there are not
rewards, raise ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STD_FLOOR = 1e-4
"""Added to a group's standard deviation by `grpo(scale=True)`, as TRL does, so that equal rewards divide by no 0."""
ENTROPIC_KL = math.log(2)
"""How far from uniform, in nats, `entropic` tilts a group."""
UNREACHABLE_SHARE = 0.5
"""Share of the largest possible KL that `entropic` aims at in a group that cannot reach `ENTROPIC_KL`."""
BISECTIONS = 100


def rloo(rewards: Sequence[float], groups: Sequence[Hashable]) -> Array:
    """A_i = r_i - mean_{j != i} r_j over the group: REINFORCE with a leave-one-out baseline.

    Source: Kool, van Hoof, Welling 2019, "Buy 4 REINFORCE samples, get a baseline for free"; Ahmadian et al. 2024,
    arXiv:2402.14740.
    """
    return _by_group(rewards, groups, _leave_one_out)


def grpo(rewards: Sequence[float], groups: Sequence[Hashable], scale: bool = False) -> Array:
    """A_i = r_i - mean_j r_j over the group; `scale` divides by the group's sample standard deviation + 1e-4.

    Source: Shao et al. 2024, arXiv:2402.03300 (scaled); Liu et al. 2025, arXiv:2503.20783 (why not to scale).
    """
    return _by_group(rewards, groups, _standardised if scale else _centred)


def trloo(
    rewards_by_trajectory: Sequence[Sequence[float]], tasks: Sequence[Hashable], gamma: float = 1.0
) -> list[Array]:
    """Turn-level leave-one-out: A_{i,t} = N_t / (N_t - 1) · (G_{i,t} - mean_t G), groups by (task, turn).

    G is `returns` of the trajectory; N_t counts the trajectories of the task that have a turn t. Equals `rloo` on the
    returns of all turns, keyed by (task, turn). One array for each trajectory.
    Source: turn-level reinforce leave-one-out of Dr. Kernel, docs/learning.md.
    """
    if len(rewards_by_trajectory) != len(tasks):
        raise ValueError(f"{len(rewards_by_trajectory)} trajectories but {len(tasks)} tasks")
    flat = [value for rewards in rewards_by_trajectory for value in returns(rewards, gamma)]
    keys = [
        (task, turn) for rewards, task in zip(rewards_by_trajectory, tasks, strict=True) for turn in _turns(rewards)
    ]
    ends = np.cumsum([len(rewards) for rewards in rewards_by_trajectory])
    return list(np.split(rloo(flat, keys), ends[:-1])) if len(ends) else []


def returns(rewards: Sequence[float], gamma: float = 1.0) -> Array:
    """G_t = sum_{t' >= t} gamma^(t' - t) · r_{t'}: what a trajectory still earns from turn t on.

    Source: Sutton and Barto 2018, section 3.3.
    """
    totals = np.zeros(len(rewards))
    ahead = 0.0
    for turn in reversed(range(len(rewards))):
        ahead = rewards[turn] + gamma * ahead
        totals[turn] = ahead
    return totals


def entropic(rewards: Sequence[float], groups: Sequence[Hashable]) -> Array:
    """A_i = e^{b r_i} / mean_{j != i} e^{b r_j} - 1 with b from `entropic_beta`; the best answers count most.

    For discovery on a single task only: it seeks the maximum, not the mean. Equal rewards get 0.
    Source: the entropic objective of test-time training for discovery (TTT-Discover), docs/learning.md.
    """
    return _by_group(rewards, groups, _entropic)


def entropic_beta(rewards: Sequence[float]) -> float:
    """b >= 0 with KL(softmax(b r) || uniform) = ln 2, found by bisection; 0 when all rewards are equal.

    The KL rises with b to ln(N / ties at the top). A group that cannot pass ln 2 (a pair, or half of it tied at the
    top) would need an infinite b: it gets the b of half its largest KL instead.
    """
    values = _finite(rewards)
    spread = float(np.ptp(values)) if len(values) else 0.0
    if spread == 0:
        return 0.0
    scaled = (values - values.max()) / spread
    limit = math.log(len(values) / np.count_nonzero(scaled == 0))
    target = ENTROPIC_KL if limit > ENTROPIC_KL + 1e-9 else UNREACHABLE_SHARE * limit
    high = 1.0
    while tilt_kl(scaled, high) < target:
        high *= 2
    low = 0.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if tilt_kl(scaled, middle) < target else (low, middle)
    return high / spread


def tilt_kl(rewards: Sequence[float] | Array, beta: float) -> float:
    """KL(softmax(beta · r) || uniform) in nats: ln N minus the entropy of the softmax."""
    logits = beta * np.asarray(rewards, dtype=np.float64)
    logs = logits - logits.max()
    logs -= math.log(np.exp(logs).sum())
    return float(math.log(len(logs)) + (np.exp(logs) * logs).sum())


def _entropic(values: Array) -> Array:
    weights: Array = np.exp(entropic_beta(values.tolist()) * (values - values.max()))
    others: Array = (weights.sum() - weights) / (len(values) - 1)
    return weights / others - 1


def _leave_one_out(values: Array) -> Array:
    others = len(values) - 1
    return _centred(values) * (len(values) / others)


def _centred(values: Array) -> Array:
    return values - float(values.mean())


def _standardised(values: Array) -> Array:
    return _centred(values) / (float(values.std(ddof=1)) + STD_FLOOR)


def _by_group(rewards: Sequence[float], groups: Sequence[Hashable], estimate: Callable[[Array], Array]) -> Array:
    """Apply `estimate` within each group of two or more."""
    if len(rewards) != len(groups):
        raise ValueError(f"{len(rewards)} rewards but {len(groups)} groups")
    values, found = _finite(rewards), np.zeros(len(rewards))
    places: dict[Hashable, list[int]] = {}
    for index, group in enumerate(groups):
        places.setdefault(group, []).append(index)
    for members in places.values():
        if len(members) > 1:
            found[members] = estimate(values[members])
    return found


def _finite(rewards: Sequence[float]) -> Array:
    values = np.asarray(rewards, dtype=np.float64)
    if not np.isfinite(values).all():
        index = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(f"reward {index} is {values[index]}, no finite number")
    return values


def _turns(rewards: Sequence[float]) -> range:
    return range(len(rewards))
