"""Triton kernels that show single costs of a GPU: launching, starting programs, copying. Needs a GPU."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

from benchmarks.calibration.on_gpu import hold, sampled
from benchmarks.calibration.records import Machine
from evaluator.device import CudaDevice


@triton.jit
def nothing_kernel(out_ptr) -> None:  # noqa: ANN001
    """Starts and ends."""


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr) -> None:  # noqa: ANN001
    """One block per program."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


def nothing(programs: int, warps: int, out: torch.Tensor) -> None:
    """`programs` programs of `warps` warps that do nothing."""
    nothing_kernel[(programs,)](out, num_warps=warps)


def copy(x: torch.Tensor, out: torch.Tensor, block: int = 4096) -> None:
    """`out` = `x`, both contiguous float32 of equal size; `block` elements per program of 4 warps."""
    copy_kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block, num_warps=4)


def machine(path: str) -> None:
    """Write what launching, starting programs and copying cost here. Runs in a child of its own."""
    device = CudaDevice()

    def median(call: Callable[[], Any]) -> float:
        return statistics.median(sampled(call, device, hold)[0])

    out = torch.empty(1, device="cuda")
    starts = {
        f"{programs}x{warps}": median(partial(nothing, programs, warps, out))
        for programs in (1, 132, 1056, 4224, 16384, 131072)
        for warps in (1, 4, 16)
    }
    copies, torch_copies = {}, {}
    for mebibytes in (1, 4, 16, 64, 256, 1024):
        x = torch.randn(mebibytes << 17, device="cuda")  # read once and written once: twice 4 bytes an element
        y = torch.empty_like(x)
        copies[mebibytes << 20] = median(partial(copy, x, y))
        torch_copies[mebibytes << 20] = median(partial(y.copy_, x))
    found = Machine(
        gpu=torch.cuda.get_device_name(),
        versions={"python": sys.version.split()[0], "torch": torch.__version__, "triton": triton.__version__},
        empty_ms=starts["1x4"],
        start_ms=starts,
        copy_ms=copies,
        torch_copy_ms=torch_copies,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    Path(path).write_text(found.model_dump_json(indent=2) + "\n")
