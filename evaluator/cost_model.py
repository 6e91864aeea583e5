"""Modelled latency of a launch on a target GPU. Not a measurement, and not calibrated: good for comparing variants.

What goes in: how much the launch does (`LaunchTrace`, counted in the interpreter) and what the compiler made of it
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
as in Volkov, "Understanding Latency Hiding on GPUs" (2016). docs/cost-model.md tells what all this ignores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import Field

from evaluator.hardware import Hardware
from evaluator.occupancy import WARP, Occupancy, occupancy
from evaluator.trace import BufferTraffic, LaunchTrace
from evaluator.types import Frozen, KernelResources, LaunchProfile


class Coefficients(Frozen):
    """Every number of the model that is neither counted nor a property of the hardware."""

    overlap: float = 4.0
    """p of the smooth maximum; larger means better overlap."""
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
_TENSOR_DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "tf32", "fp64": "float64", "int8": "int8"}
_MUFU_LANES = 16
"""Special-function results per SM and clock (CUDA C++ Programming Guide, arithmetic throughput)."""
_SCHEDULERS = 4


def predict(
    launches: Sequence[tuple[LaunchTrace, KernelResources]], hardware: Hardware, coefficients: Coefficients = DEFAULT
) -> list[LaunchProfile]:
    """The modelled profile of each launch, in order. Raises ValueError for one that does not fit on an SM."""
    return [profile_launch(trace, resources, hardware, coefficients) for trace, resources in launches]


def profile_launch(
    trace: LaunchTrace, resources: KernelResources, hardware: Hardware, coefficients: Coefficients = DEFAULT
) -> LaunchProfile:
    """The modelled profile of one launch. Raises ValueError when a program does not fit on an SM."""
    fits = occupancy(hardware, resources.num_warps, resources.registers, resources.shared_bytes)
    if fits.blocks == 0:
        raise ValueError(f"{trace.kernel}: one program needs more {fits.limiter} than an SM of {hardware.name} has")
    resident = min(fits.blocks, math.ceil(trace.programs / hardware.sms))
    dram = sum(dram_bytes(buffer, trace, hardware, fits, coefficients) for buffer in trace.buffers)
    spilled = spill_bytes(trace, resources)
    asked = sum(buffer.read_bytes + buffer.write_bytes for buffer in trace.buffers) + spilled
    issue = issue_seconds(trace, resources, hardware, coefficients)
    seconds = {
        "dram": dram_seconds(dram, trace, hardware, coefficients),
        "l2": asked / hardware.l2_bytes_per_s,
        "tensor": tensor_seconds(trace, resources, hardware, coefficients),
        "issue": issue,
        "latency": latency_seconds(trace, resources, hardware, fits, resident, coefficients),
    }
    p = coefficients.overlap
    largest = max(seconds.values())
    busy = largest * sum((value / largest) ** p for value in seconds.values()) ** (1 / p) if largest else 0.0
    bound = max(seconds, key=lambda term: seconds[term])
    if hardware.launch_s > busy:
        bound = "launch"
    terms = {name: value * 1e3 for name, value in {**seconds, "launch": hardware.launch_s}.items()}
    return LaunchProfile(
        kernel=trace.kernel,
        grid=trace.grid,
        occupancy=min(resident * resources.num_warps / hardware.max_warps_per_sm, 1.0),
        waves=trace.programs / (hardware.sms * fits.blocks),
        latency_ms=(busy + hardware.launch_s) * 1e3,
        dram_bytes=dram,
        l2_bytes=asked,
        flops=sum(trace.dot_flops.values()) + trace.ops.get("fma", 0.0),
        terms=terms,
        bound=bound,
    )


def dram_bytes(
    buffer: BufferTraffic,
    trace: LaunchTrace,
    hardware: Hardware,
    fits: Occupancy,
    coefficients: Coefficients = DEFAULT,
) -> float:
    """Bytes of one buffer that reach DRAM: first touches, what a later wave finds evicted, and evicted re-reads."""
    cache = hardware.l2_bytes * coefficients.l2_usable
    concurrent = min(trace.programs, hardware.sms * fits.blocks)
    first = min(buffer.unique_read_bytes * trace.programs * buffer.sharing, buffer.read_bytes)
    distinct = min(first, float(buffer.nbytes))
    # What all resident programs touch in one wave is the distance until a later wave touches it again.
    wave = sum(min(float(other.nbytes), _touched(other) * concurrent * other.sharing) for other in trace.buffers)
    reads = distinct + (first - distinct) * _miss(cache, wave)
    # A program's own second pass comes after all its resident neighbours' first.
    again = max(0.0, buffer.read_bytes - buffer.unique_read_bytes * trace.programs)
    reads += again * buffer.sharing * _miss(cache, buffer.unique_read_bytes * concurrent * buffer.sharing)
    writes = min(buffer.write_bytes, float(buffer.nbytes)) + buffer.atomic_bytes * _miss(cache, buffer.nbytes)
    return reads + writes


def _touched(buffer: BufferTraffic) -> float:
    return max(buffer.unique_read_bytes, buffer.unique_write_bytes)


def _miss(cache: float, distance: float) -> float:
    """Share of re-references that miss: none while the reuse distance fits, rising with what does not."""
    return 0.0 if distance <= cache else 1.0 - cache / distance


def dram_seconds(total: float, trace: LaunchTrace, hardware: Hardware, coefficients: Coefficients = DEFAULT) -> float:
    """Time for `total` bytes: the memory's bandwidth, or that of the SMs when few of them have work."""
    per_sm = hardware.dram_bytes_per_s / hardware.sms * coefficients.sm_pull
    busiest = total / trace.programs * math.ceil(trace.programs / hardware.sms)
    return max(total / hardware.dram_bytes_per_s, busiest / per_sm)


def spill_bytes(trace: LaunchTrace, resources: KernelResources) -> float:
    """Local-memory traffic: each spilled byte is written and read once per memory round of every thread."""
    per_thread = resources.spill_store_bytes + resources.spill_load_bytes
    return per_thread * trace.programs * resources.num_warps * WARP * max(1.0, trace.rounds_per_program)


def tensor_seconds(
    trace: LaunchTrace, resources: KernelResources, hardware: Hardware, coefficients: Coefficients = DEFAULT
) -> float:
    """Tensor-core time of the busiest SM."""
    if not trace.dot_flops or trace.dot_tile is None:
        return 0.0
    m, n, _ = trace.dot_tile
    efficiency = m * n / (m * n + coefficients.tile_overhead * (m + n))
    if hardware.arch >= 90 and not resources.sass_mix.get("wgmma"):
        efficiency *= coefficients.mma_share
    if resources.num_warps < _SCHEDULERS:
        efficiency *= min(1.0, _resident_warps(trace, resources, hardware) / _SCHEDULERS)
    seconds = sum(
        flops / hardware.peak_flops(_TENSOR_DTYPES.get(dtype, "float32")) for dtype, flops in trace.dot_flops.items()
    )
    return seconds / efficiency * imbalance(trace, hardware)


def _resident_warps(trace: LaunchTrace, resources: KernelResources, hardware: Hardware) -> float:
    fits = occupancy(hardware, resources.num_warps, resources.registers, resources.shared_bytes)
    return min(fits.blocks, math.ceil(trace.programs / hardware.sms)) * resources.num_warps


def imbalance(trace: LaunchTrace, hardware: Hardware) -> float:
    """The busiest SM's programs over the average's: 2 for 133 equal programs on 132 SMs."""
    share = trace.programs / hardware.sms
    return math.ceil(share) / share


def issue_seconds(
    trace: LaunchTrace, resources: KernelResources, hardware: Hardware, coefficients: Coefficients = DEFAULT
) -> float:
    """Time the busiest SM needs to issue its instructions, or to compute its special functions."""
    slots = hardware.sms * _SCHEDULERS * hardware.clock_hz
    issued = instructions(trace, resources, coefficients)[0] / slots
    return max(issued, _mufu_seconds(trace, hardware)) * imbalance(trace, hardware)


def _mufu_seconds(trace: LaunchTrace, hardware: Hardware) -> float:
    results = trace.ops.get("mufu", 0.0) + trace.ops.get("divide", 0.0)
    return results / (hardware.sms * _MUFU_LANES * hardware.clock_hz)


def instructions(
    trace: LaunchTrace, resources: KernelResources, coefficients: Coefficients = DEFAULT
) -> tuple[float, float]:
    """(warp instructions of the whole launch, of one program). Lanes that a small block leaves idle are paid for."""
    threads = resources.num_warps * WARP
    lanes = trace.programs * threads
    elements = sum(coefficients.issue_cost.get(name, 1.0) * count for name, count in trace.ops.items())
    rounds = max(1.0, trace.rounds_per_program)
    # A block of 64 elements on 256 threads issues as much as one of 256.
    idle = max(1.0, lanes * rounds / max(_moved_elements(trace), 1.0)) if trace.ops else 1.0
    width = access_bytes(resources)
    asked = sum(buffer.read_bytes + buffer.write_bytes for buffer in trace.buffers)
    accesses = max(asked / width / WARP, trace.programs * resources.num_warps * trace.reads_per_program)
    spills = (resources.spill_store_bytes + resources.spill_load_bytes) / 4 * lanes / WARP * rounds
    total = elements / WARP * min(idle, 32.0) + (accesses + spills) * coefficients.memory_instruction
    total += trace.reductions_per_program * trace.programs * resources.num_warps * 12
    return total, total / trace.programs


def _moved_elements(trace: LaunchTrace) -> float:
    # Four bytes an element is close enough for counting idle lanes.
    return sum(buffer.read_bytes for buffer in trace.buffers) / 4


def access_bytes(resources: KernelResources) -> float:
    """Bytes one thread moves per global load or store instruction, averaged over those in the SASS (4, 8 or 16)."""
    mix = resources.sass_mix
    widths = {4: mix.get("ldg32", 0) + mix.get("stg32", 0), 8: mix.get("ldg64", 0) + mix.get("stg64", 0)}
    widths[16] = mix.get("ldg128", 0) + mix.get("stg128", 0) + mix.get("ldgsts", 0) + mix.get("tma", 0)
    total = sum(widths.values())
    return sum(width * count for width, count in widths.items()) / total if total else 16.0


def latency_seconds(
    trace: LaunchTrace,
    resources: KernelResources,
    hardware: Hardware,
    fits: Occupancy,
    resident: int,
    coefficients: Coefficients = DEFAULT,
) -> float:
    """Waves times the time from a program's start to its end when nothing but waiting slows it."""
    waves = max(1.0, trace.programs / (hardware.sms * fits.blocks))
    if waves < 8:  # with many waves a late one fills in; with few the last one is paid whole
        waves = math.ceil(waves)
    read = sum(buffer.read_bytes for buffer in trace.buffers)
    missed = sum(dram_bytes(buffer, trace, hardware, fits, coefficients) for buffer in trace.buffers)
    written = sum(min(buffer.write_bytes, float(buffer.nbytes)) for buffer in trace.buffers)
    cold = min(1.0, max(0.0, missed - written) / read) if read else 0.0
    wait = cold * hardware.dram_latency_s + (1 - cold) * hardware.l2_latency_s
    rounds = trace.rounds_per_program / pipeline_depth(resources)
    reduction = coefficients.reduction_s + (coefficients.barrier_s if resources.num_warps > 1 else 0.0)
    own = instructions(trace, resources, coefficients)[1] / (_SCHEDULERS * hardware.clock_hz)
    alone = max(1.0, _SCHEDULERS / resources.num_warps)
    return waves * (coefficients.program_s + rounds * wait + trace.reductions_per_program * reduction + own * alone)


def pipeline_depth(resources: KernelResources) -> float:
    """Memory rounds in flight at once: stages - 1 where the compiler made asynchronous copies, one otherwise."""
    asynchronous = resources.sass_mix.get("ldgsts", 0) + resources.sass_mix.get("tma", 0)
    return float(max(1, resources.num_stages - 1)) if asynchronous else 1.0
