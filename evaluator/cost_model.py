"""Modelled latency of launches on a target GPU. Not a measurement: good for comparing variants.

What goes in: how much a launch does (`LaunchTrace`, counted in the interpreter) and what the compiler made of it
(`KernelResources`, from ptxas and the SASS). What comes out, per launch, in milliseconds:

    dram     bytes that reach DRAM / bandwidth; or, when few programs run, bytes per SM / what one SM can pull
    l2       bytes asked for (and spilled) / L2 bandwidth
    tensor   tensor-core operations / peak, by tile and instruction
    issue    instructions / issue slots, and special functions / their units (the larger)
    latency  waves x the time one program waits: memory rounds, reductions, its own instructions
    launch   starting and draining the kernel

    latency_ms = (dram^p + l2^p + tensor^p + issue^p + latency^p)^(1/p) + launch,   p = `Coefficients.overlap`

The p-norm is a smooth maximum: the largest term decides, and terms of equal size hide each other only partly (the
roofline model of Williams, Waterman and Patterson, 2009, with imperfect overlap). Latency hiding follows Little's law
as in Volkov, "Understanding Latency Hiding on GPUs" (2016). docs/cost-model.md tells what all this ignores, and how the
coefficients were fitted to measured kernels (`evaluator.calibration`).

Arrays are over launches, (n,), or over launches and their buffers, (n, b); times are seconds unless a name says ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from evaluator.hardware import Hardware
from evaluator.launch_features import PIPES, Array, Features, features
from evaluator.occupancy import WARP
from evaluator.types import Frozen, KernelResources, LaunchProfile

if TYPE_CHECKING:
    from evaluator.trace import LaunchTrace


class Coefficients(Frozen):
    """Every number of the model that is neither counted nor a property of the hardware."""

    overlap: float = 4.0
    """p of the smooth maximum; larger means better overlap."""
    dram_reach: float = 1.0
    """Share of the measured copy bandwidth that kernels reach."""
    l2_usable: float = 0.7
    """Share of L2 that keeps reusable data beside streams."""
    sm_pull: float = 3.0
    """One SM's largest memory throughput over its fair share of the GPU's."""
    reduction_s: float = 60e-9
    """A reduction within a warp: five shuffle steps and their waits."""
    barrier_s: float = 40e-9
    """What a reduction over several warps adds: through shared memory and a barrier."""
    program_s: float = 0.6e-6
    """Starting a program: arguments, index arithmetic, the first instruction misses."""
    issue_cost: dict[str, float] = Field(
        default_factory=lambda: {
            "fma": 1.0,
            "alu": 0.4,
            "compare": 0.4,
            "convert": 1.0,
            "mufu": 3.0,
            "divide": 9.0,
            "reduce": 1.5,
        }
    )
    """Instructions per counted element. Below one where the compiler folds address and mask arithmetic."""
    memory_instruction: float = 4.0
    """Issue slots one load or store instruction keeps busy in the load-store unit."""
    mma_share: float = 0.6
    """Reach of warp-level mma instructions on a GPU whose peak needs warp-group ones."""
    tile_overhead: float = 16.0
    """t in the efficiency m·n / (m·n + t·(m + n)) of an m by n tile: feeding operands against multiplying them."""


DEFAULT = Coefficients()
TERMS = ("dram", "l2", "tensor", "issue", "latency")
_MUFU_LANES = 16
"""Special-function results per SM and clock (CUDA C++ Programming Guide, arithmetic throughput)."""
_SCHEDULERS = 4
_REDUCTION_INSTRUCTIONS = 12
_MAX_IDLE = 32.0


@dataclass(frozen=True)
class Prediction:
    """What the model says of n launches, in seconds and bytes."""

    latency_s: Array
    terms: Mapping[str, Array]
    """Seconds by name: those of `TERMS`, and launch."""
    dram_bytes: Array
    l2_bytes: Array


def predict(
    launches: Sequence[tuple[LaunchTrace, KernelResources]], hardware: Hardware, coefficients: Coefficients = DEFAULT
) -> list[LaunchProfile]:
    """The modelled profile of each launch, in order. Raises ValueError for one that does not fit on an SM."""
    if not launches:
        return []
    held = features(launches, hardware)
    found = latencies(held, hardware, coefficients)
    residents = resident(held, hardware)
    profiles = []
    for row, (trace, resources) in enumerate(launches):
        terms = {name: float(values[row]) * 1e3 for name, values in found.terms.items()}
        profiles.append(
            LaunchProfile(
                kernel=trace.kernel,
                grid=trace.grid,
                occupancy=min(residents[row] * resources.num_warps / hardware.max_warps_per_sm, 1.0),
                waves=trace.programs / (hardware.sms * held.blocks[row]),
                latency_ms=float(found.latency_s[row]) * 1e3,
                dram_bytes=float(found.dram_bytes[row]),
                l2_bytes=float(found.l2_bytes[row]),
                flops=float(held.dot_flops[row] + held.fma_flops[row]),
                terms=terms,
                bound=_bound(terms, float(found.latency_s[row]) * 1e3),
            )
        )
    return profiles


def _bound(terms: Mapping[str, float], latency_ms: float) -> str:
    """The largest term, or launch where it takes longer than all the rest together."""
    busy = {name: terms[name] for name in TERMS}
    return "launch" if terms["launch"] > latency_ms / 2 else max(busy, key=lambda name: busy[name])


def latencies(held: Features, hardware: Hardware, coefficients: Coefficients = DEFAULT) -> Prediction:
    """Latency and terms of all launches at once."""
    reached = dram_bytes(held, hardware, coefficients)
    asked = held.buffers.read.sum(1) + held.buffers.write.sum(1) + spill_bytes(held)
    terms = {
        "dram": dram_seconds(reached.sum(1), held, hardware, coefficients),
        "l2": asked / hardware.l2_bytes_per_s,
        "tensor": tensor_seconds(held, hardware, coefficients),
        "issue": issue_seconds(held, hardware, coefficients),
        "latency": latency_seconds(held, hardware, coefficients, reached),
    }
    busy = smooth_maximum(np.stack([terms[name] for name in TERMS]), coefficients.overlap)
    terms["launch"] = np.full_like(busy, hardware.launch_s)
    return Prediction(busy + hardware.launch_s, terms, reached.sum(1), asked)


def smooth_maximum(values: Array, p: float) -> Array:
    """p-norm over the first axis of non-negative values."""
    largest = values.max(0)
    scaled = values / np.where(largest > 0, largest, 1.0)
    total: Array = largest * (scaled**p).sum(0) ** (1 / p)
    return total


def resident(held: Features, hardware: Hardware) -> Array:
    """Programs on a busy SM at one time."""
    return np.minimum(held.blocks, np.ceil(held.programs / hardware.sms))


def dram_bytes(held: Features, hardware: Hardware, coefficients: Coefficients = DEFAULT) -> Array:
    """(n, b) bytes that reach DRAM: first touches, what a later wave finds evicted, and evicted re-reads."""
    buffers = held.buffers
    cache = hardware.l2_bytes * coefficients.l2_usable
    programs = held.programs[:, None]
    concurrent = np.minimum(held.programs, hardware.sms * held.blocks)[:, None]
    first = np.minimum(buffers.unique_read * programs * buffers.sharing, buffers.read)
    distinct = np.minimum(first, buffers.nbytes)
    # What all resident programs touch in one wave is the distance until a later wave touches it again.
    touched = np.maximum(buffers.unique_read, buffers.unique_write)
    wave = np.minimum(buffers.nbytes, touched * concurrent * buffers.sharing).sum(1, keepdims=True)
    reads = distinct + (first - distinct) * _miss(cache, wave)
    # A program's own second pass comes after all its resident neighbours' first.
    again = np.maximum(0.0, buffers.read - buffers.unique_read * programs)
    reads = reads + again * buffers.sharing * _miss(cache, buffers.unique_read * concurrent * buffers.sharing)
    writes = np.minimum(buffers.write, buffers.nbytes) + buffers.atomic * _miss(cache, buffers.nbytes)
    total: Array = reads + writes
    return total


def _miss(cache: float, distance: Array) -> Array:
    """Share of re-references that miss: none while the reuse distance fits, rising with what does not."""
    return np.maximum(0.0, 1.0 - cache / np.maximum(distance, 1.0))


def dram_seconds(total: Array, held: Features, hardware: Hardware, coefficients: Coefficients = DEFAULT) -> Array:
    """Time for `total` bytes: the memory's bandwidth, or that of the SMs when few of them have work."""
    rate = hardware.dram_bytes_per_s * coefficients.dram_reach
    per_sm = rate / hardware.sms * coefficients.sm_pull
    busiest = total / held.programs * np.ceil(held.programs / hardware.sms)
    longest: Array = np.maximum(total / rate, busiest / per_sm)
    return longest


def spill_bytes(held: Features) -> Array:
    """Local-memory traffic: each spilled byte is written and read once per memory round of every thread."""
    return held.spilled * held.programs * held.warps * WARP * np.maximum(1.0, held.rounds)


def tensor_seconds(held: Features, hardware: Hardware, coefficients: Coefficients = DEFAULT) -> Array:
    """Tensor-core time of the busiest SM."""
    area = held.tile_m * held.tile_n
    efficiency = area / (area + coefficients.tile_overhead * (held.tile_m + held.tile_n))
    if hardware.arch >= 90:
        efficiency = efficiency * np.where(held.warp_group > 0, 1.0, coefficients.mma_share)
    fed = np.minimum(1.0, resident(held, hardware) * held.warps / _SCHEDULERS)
    return held.peak_seconds / (efficiency * fed) * imbalance(held, hardware)


def imbalance(held: Features, hardware: Hardware) -> Array:
    """The busiest SM's programs over the average's: 2 for 133 equal programs on 132 SMs."""
    share = held.programs / hardware.sms
    return np.ceil(share) / share


def issue_seconds(held: Features, hardware: Hardware, coefficients: Coefficients = DEFAULT) -> Array:
    """Time the busiest SM needs to issue its instructions, or to compute its special functions."""
    issued = instructions(held, coefficients) / (hardware.sms * _SCHEDULERS * hardware.clock_hz)
    results = held.ops["mufu"] + held.ops["divide"]
    special = results / (hardware.sms * _MUFU_LANES * hardware.clock_hz)
    return np.maximum(issued, special) * imbalance(held, hardware)


def instructions(held: Features, coefficients: Coefficients = DEFAULT) -> Array:
    """Warp instructions of the whole launch. Lanes that a small block leaves idle are paid for."""
    lanes = held.programs * held.warps * WARP
    elements = sum((coefficients.issue_cost[pipe] * held.ops[pipe] for pipe in PIPES), np.zeros_like(lanes))
    rounds = np.maximum(1.0, held.rounds)
    # A block of 64 elements on 256 threads issues as much as one of 256. Four bytes an element is close enough.
    moved = np.maximum(held.buffers.read.sum(1) / 4, 1.0)
    idle = np.clip(lanes * rounds / moved, 1.0, _MAX_IDLE)
    asked = held.buffers.read.sum(1) + held.buffers.write.sum(1)
    accesses = np.maximum(asked / held.access_bytes / WARP, held.programs * held.warps * held.reads)
    spills = held.spilled / 4 * lanes / WARP * rounds
    reductions = held.reductions * held.programs * held.warps * _REDUCTION_INSTRUCTIONS
    total: Array = elements / WARP * idle + (accesses + spills) * coefficients.memory_instruction + reductions
    return total


def latency_seconds(
    held: Features, hardware: Hardware, coefficients: Coefficients = DEFAULT, reached: Array | None = None
) -> Array:
    """Waves times the time from a program's start to its end when nothing but waiting slows it."""
    reached = dram_bytes(held, hardware, coefficients) if reached is None else reached
    waves = np.maximum(1.0, held.programs / (hardware.sms * held.blocks))
    waves = np.where(waves < 8, np.ceil(waves), waves)  # with few waves the last one is paid whole
    read = held.buffers.read.sum(1)
    written = np.minimum(held.buffers.write, held.buffers.nbytes).sum(1)
    cold = np.clip((reached.sum(1) - written) / np.maximum(read, 1.0), 0.0, 1.0)
    wait = cold * hardware.dram_latency_s + (1 - cold) * hardware.l2_latency_s
    reduction = coefficients.reduction_s + np.where(held.warps > 1, coefficients.barrier_s, 0.0)
    own = instructions(held, coefficients) / held.programs / (_SCHEDULERS * hardware.clock_hz)
    alone = np.maximum(1.0, _SCHEDULERS / held.warps)
    program = coefficients.program_s + held.rounds / pipeline_depth(held) * wait + held.reductions * reduction
    total: Array = waves * (program + own * alone)
    return total


def pipeline_depth(held: Features) -> Array:
    """Memory rounds in flight at once: stages - 1 where the compiler made asynchronous copies, one otherwise."""
    depth: Array = np.where(held.asynchronous > 0, np.maximum(1.0, held.stages - 1), 1.0)
    return depth
