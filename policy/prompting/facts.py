"""What a prompt says of a kernel, a task and a GPU: plain lines out of their records."""

from __future__ import annotations

import re
from collections.abc import Mapping

from evaluator.hardware import TARGETS, Hardware
from evaluator.types import Evaluation, KernelResources, LaunchProfile, Profile, Task, Workload
from policy.prompting.text import clipped, inline
from policy.types import ParentView

PARENT_LINES = 40
"""Lines of compiler words, mismatches and the like that a prompt shows of the parent."""
ATTEMPT_LINES = 12
"""The same for any other kernel."""

# Boards that share a chip's name and not its memory or clocks.
_OTHER_BOARDS = frozenset({"pcie", "nvl", "40gb"})


def hardware_of(target: str) -> Hardware | None:
    """The data sheet of a target or a device's name (`h200`, `NVIDIA H200`); None where there is none."""
    words = re.findall(r"[a-z0-9]+", target.lower())
    if _OTHER_BOARDS.intersection(words):
        return None
    return next((TARGETS[word] for word in words if word in TARGETS), None)


def hardware_lines(hardware: Hardware, task: Task) -> list[str]:
    """The peaks that bound a kernel of `task`, one a line, each with its source where it is on record."""
    rates = {"dram_bytes_per_s": hardware.dram_bytes_per_s, "l2_bytes_per_s": hardware.l2_bytes_per_s}
    dram, l2 = (f"{rate / 1e12:.2f} TB/s{_source(hardware, name)}" for name, rate in rates.items())
    peaks = {task.dtype: hardware.peak_flops(task.dtype), "float32": hardware.flops["float32"]}
    if task.allow_tf32 or any(precision.startswith("tf32") for precision in task.input_precisions):
        peaks["tf32"] = hardware.flops["tf32"]
    shown = ", ".join(f"{name} {rate / 1e12:.4g} TFLOP/s" for name, rate in peaks.items())
    return [
        f"SMs: {hardware.sms}, compute capability {hardware.arch / 10:.1f}, {hardware.clock_hz / 1e9:.2f} GHz",
        f"DRAM: {dram}",
        f"L2: {hardware.l2_bytes >> 20} MiB, {l2}",
        f"Dense peaks: {shown}{_source(hardware, 'flops')}",
        f"Shared memory: {hardware.shared_bytes_per_block >> 10} KiB per block, "
        f"{hardware.shared_bytes_per_sm >> 10} KiB per SM",
        f"Registers: {hardware.registers_per_sm} per SM, at most {hardware.max_registers_per_thread} per thread; "
        f"at most {hardware.max_warps_per_sm} warps and {hardware.max_blocks_per_sm} blocks per SM",
        *_bounds(hardware, task),
    ]


def _source(hardware: Hardware, rate: str) -> str:
    source = hardware.provenance.get(rate, "")
    return f" ({source})" if source else ""


def _bounds(hardware: Hardware, task: Task) -> list[str]:
    """The least time of each workload: its bytes at DRAM's rate or its operations at the peak."""
    lines = []
    peak = hardware.flops["tf32"] if task.allow_tf32 else hardware.peak_flops(task.dtype)
    for workload in task.workloads:
        terms = {
            "DRAM": (workload.bytes_moved or 0) / hardware.dram_bytes_per_s,
            "arithmetic": (workload.flops or 0) / peak,
        }
        bound = max(terms, key=lambda name: terms[name])
        if terms[bound] > 0:
            lines.append(f"Least time of {workload.name}: {terms[bound] * 1e3:.4g} ms, bound by {bound}")
    return lines


def shape_of(workload: Workload) -> str:
    """`M=8192, N=4096`, or the workload's name when it has no parameters."""
    return ", ".join(f"{key}={value}" for key, value in workload.params.items()) or workload.name


def outcome(evaluation: Evaluation | None) -> str:
    """The verdict in a few words that hold nothing a kernel wrote."""
    if evaluation is None:
        return "not judged yet"
    if not evaluation.status.passed:
        return f"{evaluation.status}{' (counts as cheating)' if evaluation.status.is_hack else ''}"
    if evaluation.speedup is None:
        return f"correct, no baseline to compare with ({evaluation.kind} timing)"
    return f"correct, {evaluation.speedup:.3f}x the baseline ({evaluation.kind} timing)"


def log_of(evaluation: Evaluation, lines: int, *, launches: bool = True) -> str:
    """What the judge said: reason, timings, profile, then at most `lines` lines of its explanation."""
    found = [inline(evaluation.reason)] if evaluation.reason else []
    found += _timing_lines(evaluation)
    if evaluation.profile is not None:
        found += profile_lines(evaluation.profile, launches=launches)
    found += clipped(evaluation.explain, lines)
    return "\n".join(dict.fromkeys(found))


def _timing_lines(evaluation: Evaluation) -> list[str]:
    lines = []
    for name, timing in evaluation.timings.items():
        line = f"{name}: {timing.median_ms:.4g} ms {timing.kind}"
        if timing.speedup is not None:
            interval = ""
            if timing.ratio_low is not None and timing.ratio_high is not None:
                interval = f", 95 % interval {timing.ratio_low:.3f} to {timing.ratio_high:.3f}"
            line += (
                f", {timing.speedup:.3f}x the baseline{f' ({timing.baseline})' if timing.baseline else ''}{interval}"
            )
        if timing.speed_of_light_ms is not None:
            line += f", speed of light {timing.speed_of_light_ms:.4g} ms"
        lines.append(line)
    return lines


def profile_lines(profile: Profile, *, launches: bool = True) -> list[str]:
    """Bottleneck, coverage, resources, launches and counters of a profiled kernel."""
    lines = [f"bottleneck: {profile.bottleneck} ({profile.kind})"] if profile.bottleneck else []
    if profile.coverage is not None:
        lines.append(f"coverage: {profile.coverage:.0%} of the GPU's time is in your Triton kernels")
    lines += list(dict.fromkeys(_resource_line(resources) for resources in profile.resources))
    if launches:
        for workload, launched in profile.launches.items():
            lines += [f"{workload}: {_launch_line(launch)}" for launch in launched]
    lines += [counters.line() for counters in profile.counters]
    return lines


def _resource_line(resources: KernelResources) -> str:
    line = (
        f"{resources.name}: {resources.registers} registers per thread, {resources.shared_bytes} bytes of "
        f"shared memory, {resources.num_warps} warps, {resources.num_stages} stages"
    )
    spilled = resources.spill_store_bytes + resources.spill_load_bytes
    return f"{line}, spills {spilled} bytes" if spilled else line


def _launch_line(launch: LaunchProfile) -> str:
    slowest = sorted(launch.terms.items(), key=lambda term: -term[1])[:3]
    terms = ", ".join(f"{name} {ms:.3g}" for name, ms in slowest)
    grid = " x ".join(str(side) for side in launch.grid)
    line = (
        f"{launch.kernel}, grid {grid}: {launch.latency_ms:.4g} ms, bound by {launch.bound}, "
        f"occupancy {launch.occupancy:.0%}, {launch.waves:.1f} waves"
    )
    return f"{line} (ms by cause: {terms})" if terms else line


def difference(parent: ParentView, other: ParentView) -> str:
    """How `other` behaves differently from `parent`: archive descriptors, or the bottleneck where cells are unknown."""
    mine, theirs = _behaviour(parent), _behaviour(other)
    parts = [
        f"{name} {inline(word)} (the parent: {inline(mine[name])})"
        for name, word in theirs.items()
        if name in mine and mine[name] != word
    ]
    parts += [f"{name} {inline(word)}" for name, word in theirs.items() if name not in mine]
    return "; ".join(parts)


def _behaviour(view: ParentView) -> Mapping[str, str]:
    if view.cell:
        return view.cell
    profile = None if view.evaluation is None else view.evaluation.profile
    return {"bottleneck": profile.bottleneck} if profile is not None and profile.bottleneck else {}


def history(view: ParentView) -> str:
    """The rewrites that made a kernel, e.g. `whole_row(kernel=softmax_kernel)`; empty without any."""
    return ", ".join(
        f"{inline(step.name)}({', '.join(f'{inline(key)}={inline(str(value))}' for key, value in step.args.items())})"
        for step in view.rewrites
    )
