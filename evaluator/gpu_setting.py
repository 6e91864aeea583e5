"""What all candidates of a gpu evaluator share, and what timing one workload of one of them gave."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from evaluator.clocks import Clocks
from evaluator.gpu_baseline import Baseline
from evaluator.gpu_cases import DeviceCases
from evaluator.summary import Summary
from evaluator.timing import Tier
from evaluator.types import Workload

Run = Callable[[], int]
"""Keeps the GPU busy for a while and returns how many calls that were."""


class Limit(NamedTuple):
    """What a workload takes at least, in ms."""

    light_ms: float
    """max(bytes / bandwidth, flops / peak)."""
    floor_ms: float
    """The same without what L2 may still hold at the end: an honest kernel cannot be faster."""


class Locks(Protocol):
    """Who may use the GPU."""

    def shared(self) -> AbstractContextManager[None]:
        """Beside other checks."""
        ...

    def exclusive(self) -> AbstractContextManager[None]:
        """Alone."""
        ...


@dataclass
class Measured:
    """What timing one workload gave."""

    summary: Summary
    clocks: Clocks
    checked: int
    energy_mj: float | None
    profile: Any
    """What the worker says of a block under the profiler."""
    profiled: int
    """Calls in that block."""


@dataclass
class Setting:
    """What all candidates of an evaluator share."""

    cases: DeviceCases
    baseline: Baseline | None
    locks: Locks
    limit: Callable[[Workload], Limit]
    ring: int
    target: str
    tier: Callable[[float | None], Tier]
    """From the screened speedup (None before) to the tier to time with."""
    energy_mj: Callable[[Run], float | None]
    has_clocks: bool
    memory_bytes: int
    """Of the device that one candidate's tensors may take, arenas apart."""
    keep_bytes: int
    """Of that, what outputs may take until the judge has chosen which to look at."""
    straight_to_confirm: bool
    """Whether the screen tier is left out."""
