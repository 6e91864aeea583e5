"""Launches as arrays: what the cost model needs of traces and compiled resources, for many launches at once.

Shapes: (n,) over launches, (n, b) over launches and their buffers; launches with fewer buffers are padded with empty
ones. Nothing here depends on a coefficient, so a fit computes it once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evaluator.hardware import Hardware
from evaluator.occupancy import occupancy
from evaluator.types import KernelResources

if TYPE_CHECKING:
    from evaluator.trace import LaunchTrace

Array = NDArray[np.float64]
PIPES = ("fma", "alu", "compare", "convert", "mufu", "divide", "reduce")
"""Classes of counted operations (see evaluator.op_counts)."""
_TENSOR_DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "tf32", "fp64": "float64", "int8": "int8"}


@dataclass(frozen=True)
class Buffers:
    """(n, b) arrays, bytes over the whole grid unless said otherwise; see `evaluator.trace.BufferTraffic`."""

    nbytes: Array
    read: Array
    write: Array
    atomic: Array
    unique_read: Array
    """Distinct line bytes one program reads."""
    unique_write: Array
    sharing: Array


@dataclass(frozen=True)
class Features:
    """(n,) arrays; counts are totals over the grid unless said otherwise."""

    programs: Array
    warps: Array
    """Per program."""
    blocks: Array
    """Programs that fit on one SM."""
    buffers: Buffers
    ops: Mapping[str, Array]
    """Elements computed, by pipe."""
    fma_flops: Array
    dot_flops: Array
    peak_seconds: Array
    """Tile products at the hardware's peak rate."""
    tile_m: Array
    """1 where there is no tile product."""
    tile_n: Array
    warp_group: Array
    """1 where tensor-core instructions are those of warp groups or later."""
    reads: Array
    """Load operations of one program."""
    rounds: Array
    """Times one program waits for memory."""
    reductions: Array
    """Of one program."""
    stages: Array
    asynchronous: Array
    """1 where the code copies asynchronously into shared memory."""
    access_bytes: Array
    """Of one thread's load or store instruction."""
    spilled: Array
    """Bytes one thread stores and loads, each once in the code."""


def features(launches: Sequence[tuple[LaunchTrace, KernelResources]], hardware: Hardware) -> Features:
    """Arrays over `launches`, in order. Raises ValueError for one that does not fit on an SM."""
    traces = [trace for trace, _ in launches]
    resources = [kernel for _, kernel in launches]
    mixes = [kernel.sass_mix for kernel in resources]
    tiles = [trace.dot_tile or (1, 1, 1) for trace in traces]
    return Features(
        programs=_array(trace.programs for trace in traces),
        warps=_array(kernel.num_warps for kernel in resources),
        blocks=_array(_blocks(trace, kernel, hardware) for trace, kernel in launches),
        buffers=_buffers(traces),
        ops={pipe: _array(trace.ops.get(pipe, 0.0) for trace in traces) for pipe in PIPES},
        fma_flops=_array(trace.ops.get("fma", 0.0) for trace in traces),
        dot_flops=_array(sum(trace.dot_flops.values()) for trace in traces),
        peak_seconds=_array(_peak_seconds(trace, hardware) for trace in traces),
        tile_m=_array(tile[0] for tile in tiles),
        tile_n=_array(tile[1] for tile in tiles),
        warp_group=_array(float("wgmma" in mix) for mix in mixes),
        reads=_array(trace.reads_per_program for trace in traces),
        rounds=_array(trace.rounds_per_program for trace in traces),
        reductions=_array(trace.reductions_per_program for trace in traces),
        stages=_array(kernel.num_stages for kernel in resources),
        asynchronous=_array(float(bool(mix.get("ldgsts", 0) + mix.get("tma", 0))) for mix in mixes),
        access_bytes=_array(access_bytes(kernel) for kernel in resources),
        spilled=_array(kernel.spill_store_bytes + kernel.spill_load_bytes for kernel in resources),
    )


def access_bytes(resources: KernelResources) -> float:
    """Bytes one thread moves per global load or store instruction, averaged over those in the SASS (4, 8 or 16)."""
    mix = resources.sass_mix
    widths = {4: mix.get("ldg32", 0) + mix.get("stg32", 0), 8: mix.get("ldg64", 0) + mix.get("stg64", 0)}
    widths[16] = mix.get("ldg128", 0) + mix.get("stg128", 0) + mix.get("ldgsts", 0) + mix.get("tma", 0)
    total = sum(widths.values())
    return sum(width * count for width, count in widths.items()) / total if total else 16.0


def _array(values: object) -> Array:
    return np.fromiter(values, dtype=np.float64)  # type: ignore[call-overload, no-any-return]


def _blocks(trace: LaunchTrace, resources: KernelResources, hardware: Hardware) -> int:
    fits = occupancy(hardware, resources.num_warps, resources.registers, resources.shared_bytes)
    if fits.blocks == 0:
        raise ValueError(f"{trace.kernel}: one program needs more {fits.limiter} than an SM of {hardware.name} has")
    return fits.blocks


def _peak_seconds(trace: LaunchTrace, hardware: Hardware) -> float:
    return math.fsum(
        flops / hardware.peak_flops(_TENSOR_DTYPES.get(dtype, "float32")) for dtype, flops in trace.dot_flops.items()
    )


def _buffers(traces: Sequence[LaunchTrace]) -> Buffers:
    width = max((len(trace.buffers) for trace in traces), default=0)
    names = (
        "nbytes",
        "read_bytes",
        "write_bytes",
        "atomic_bytes",
        "unique_read_bytes",
        "unique_write_bytes",
        "sharing",
    )
    arrays = []
    for name in names:
        array = np.zeros((len(traces), width))
        for row, trace in enumerate(traces):
            array[row, : len(trace.buffers)] = [getattr(buffer, name) for buffer in trace.buffers]
        arrays.append(array)
    return Buffers(*arrays)
