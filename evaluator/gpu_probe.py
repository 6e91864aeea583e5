"""What can be measured on the visible GPUs: `python -m evaluator.gpu_probe` prints one finding a line, as JSON.

A process of its own, because a broken driver may end it; what it has printed by then still counts. It measures nothing
and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from evaluator.ceilings import GpuIdentity, kept_ceilings
from evaluator.energy import other_users
from evaluator.nvml import Gpu, NvmlUnavailableError


class Finding(NamedTuple):
    """One thing looked at: `warn` costs safety or makes measuring impossible."""

    name: str
    state: Literal["ok", "info", "warn"]
    detail: str
    fix: str = ""


NO_GPU = (
    Finding("GPU", "info", "none; `evaluator: {type: cpu}`, the default, models latencies instead of measuring them"),
    Finding("measuring", "info", "`platform: interpreter` tries the gpu evaluator's machinery without a GPU"),
)


def findings() -> Iterator[Finding]:
    """Everything, in the order in which it is found."""
    import torch

    yield Finding("import torch", "ok", f"{torch.__version__}, built for CUDA {torch.version.cuda or 'not at all'}")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        yield from NO_GPU
    for index in range(count):
        yield from _gpu(index)


def _gpu(index: int) -> Iterator[Finding]:
    import torch

    properties = torch.cuda.get_device_properties(index)
    uuid, name = f"GPU-{properties.uuid}", str(properties.name)
    driver = "unknown"
    # Others are looked for before this process opens a context of its own, which would look like one of theirs.
    try:
        gpu = Gpu(uuid)
        driver, users = gpu.driver_version(), other_users(gpu)
        managed = _managed(index, gpu)
    except NvmlUnavailableError as error:
        users = ""
        managed = Finding(
            f"GPU {index}: NVML",
            "warn",
            f"{error}; energy and other users of the GPU stay unknown",
            "install the driver's libnvidia-ml; containers need the driver capability `utility`",
        )
    free, total = torch.cuda.mem_get_info(index)
    detail = f"{name}, {_gib(total)}, {_gib(free)} free, driver {driver}"
    if users:
        fix = "wait for it, name other GPUs with evaluator.device, or set evaluator.allow_busy: true"
        yield Finding(f"GPU {index}", "warn", f"{detail}, in use by {users}", fix)
    else:
        yield Finding(f"GPU {index}", "ok", f"{detail}, free to use")
    yield managed
    yield _ceilings(index, GpuIdentity(uuid=uuid, name=name, driver=driver, torch=torch.__version__))
    yield from _on_device(index)


def _managed(index: int, gpu: Gpu) -> Finding:
    """What NVML tells beside who uses the GPU."""
    reading = gpu.reading()
    clock = "unknown" if reading.sm_clock_mhz is None else f"{reading.sm_clock_mhz} MHz"
    power = "unknown" if reading.power_w is None else f"{reading.power_w:.0f} W"
    try:
        gpu.energy_j()
    except NvmlUnavailableError as error:
        return Finding(f"GPU {index}: NVML", "info", f"no energy per call: {error}; SM clock {clock}, power {power}")
    return Finding(f"GPU {index}: NVML", "ok", f"energy counter readable, SM clock {clock}, power {power}")


def _ceilings(index: int, identity: GpuIdentity) -> Finding:
    kept = kept_ceilings(identity)
    if kept is None:
        detail = "not measured yet; the first campaign measures them in about a second"
        return Finding(f"GPU {index}: ceilings", "info", detail)
    rates = ", ".join(f"{name} {rate / 1e12:.0f} TFLOP/s" for name, rate in kept.flops.items())
    return Finding(f"GPU {index}: ceilings", "ok", f"copy {kept.copy_bytes_per_s / 1e12:.2f} TB/s, {rates}")


def _on_device(index: int) -> Iterator[Finding]:
    """What needs work on the device: the profiler, and L2's persisting lines."""
    import torch

    from evaluator.gpu_platform import CudaPlatform

    try:
        torch.cuda.set_device(index)
        platform = CudaPlatform()
        seen = platform.profiled(lambda: torch.ones(1 << 20, device="cuda").sum())
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        yield Finding(f"GPU {index}: profiler", "warn", f"could not be tried: {reason}", "free the GPU and try again")
        return
    yield _profiler(index, seen)
    if platform.timer.persisting_reset:
        yield Finding(f"GPU {index}: L2", "ok", "lines that a kernel made persist are reset before each sample")
    else:
        detail = "persisting lines cannot be reset (older than sm_80, or MIG); L2 is only overwritten"
        yield Finding(f"GPU {index}: L2", "info", detail)


def _profiler(index: int, seen: list[Any]) -> Finding:
    name = f"GPU {index}: profiler"
    if seen:
        return Finding(name, "ok", "CUPTI shows what runs on the GPU, through torch.profiler")
    fix = "end other profilers (ncu, nsys, DCGM's profiling) and check that CUPTI fits the driver"
    return Finding(name, "warn", "torch.profiler shows no kernels: no candidate can pass the profile stage", fix)


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


if __name__ == "__main__":
    for found in findings():
        print(json.dumps(found._asdict()), flush=True)
