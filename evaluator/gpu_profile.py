"""A worker's report of what the device did while the profiler looked."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from evaluator.gpu_platform import DeviceWork
from evaluator.gpu_refusal import refused, reports
from evaluator.types import EvalStatus

_COPIES = re.compile(r"Memcpy DtoD|void at::native::\w+<.*\bat::native::direct_copy_kernel_cuda\(")
"""Device work of torch's that moves values, changes their dtype at most, and computes nothing."""


def read_work(answer: Any) -> list[DeviceWork]:
    """What the profiler saw, as the worker reports it. Raises `RefusedError` for anything else."""
    try:
        work = [DeviceWork(str(name), float(begin), float(ms)) for name, begin, ms in reports(answer, "work")]
    except (TypeError, ValueError):
        raise refused(EvalStatus.HARNESS_TAMPER, "the worker reports no profile") from None
    if not all(math.isfinite(part.begin_ms) and math.isfinite(part.ms) and part.ms >= 0 for part in work):
        raise refused(EvalStatus.HARNESS_TAMPER, "the worker reports impossible times in its profile")
    return work


def busy_ms(work: Sequence[DeviceWork]) -> float:
    """Time in which any stream was busy: the length of the union of intervals."""
    total, until = 0.0, -math.inf
    for part in sorted(work, key=lambda part: part.begin_ms):
        end = part.begin_ms + part.ms
        total += max(0.0, end - max(part.begin_ms, until))
        until = max(until, end)
    return total


def copy_ms(work: Sequence[DeviceWork]) -> float:
    """Time of what torch only copies, such as a transposed input made contiguous."""
    return sum(part.ms for part in work if _COPIES.match(part.name))
