"""The judge's view of the device: how arenas are made there, who may use it, and what its ceilings are.

`cuda` is a GPU; `interpreter` stands in for one (see `evaluator.gpu_platform`), with the target's published figures.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from evaluator import hardware
from evaluator.ceilings import GpuIdentity, ceilings_of, measure_ceilings
from evaluator.device import CudaDevice
from evaluator.energy import Energy, measure_energy, other_users
from evaluator.errors import EnvironmentUnusableError
from evaluator.gpu_lock import GpuLock
from evaluator.gpu_memory import Arena, CudaArena, HostArena
from evaluator.gpu_platform import ARENAS
from evaluator.gpu_setting import Limit, Locks, Run
from evaluator.judge import TORCH
from evaluator.nvml import Gpu, NvmlUnavailableError
from evaluator.types import Task, Workload

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Machine:
    """One device."""

    platform: str
    device: str
    """torch's name of it in the judge."""
    target: str
    """Name of its model, for records."""
    memory_bytes: int
    """What may be used of its memory."""
    locks: Locks
    make_arena: Callable[[int], Arena]
    worker_environment: Mapping[str, str]
    limit: Callable[[Task, Workload, int], Limit]
    """From task, workload and the least bytes that must move."""
    energy_mj: Callable[[Run], float | None]
    """Millijoules per call of a run; None where they cannot be read."""
    has_clocks: bool
    """Whether events, the judge's clock and the profiler can be held against each other."""
    has_tools: bool
    """Whether NVIDIA's command-line tools can look into what runs there."""

    def give_back(self) -> None:
        """Return what the judge's own tensors held; the next evaluator of this process may need it."""
        if self.platform == "cuda":
            import torch

            torch.cuda.empty_cache()

    def enter_thread(self) -> None:
        """Make the device current in the calling thread."""
        if self.platform == "cuda":
            import torch

            torch.cuda.set_device(self.device)


def find(platform: str, index: int, folder: Path, target: str, allow_busy: bool) -> Machine:
    """The machine of a platform. Raises `EnvironmentUnusableError` when there is no (free) GPU."""
    return _FOUND[platform](index, folder, target, allow_busy)


def _interpreter(index: int, folder: Path, target: str, allow_busy: bool) -> Machine:
    known = hardware.get(target)
    arenas = folder / "arenas"
    arenas.mkdir(exist_ok=True)
    arenas.chmod(0o711)

    def limit(task: Task, workload: Workload, moved: int) -> Limit:
        seconds = (workload.bytes_moved or moved) / known.dram_bytes_per_s
        return Limit(seconds * 1e3, 0.0)

    return Machine(
        platform="interpreter",
        device="cpu",
        target="interpreter",
        memory_bytes=8 << 30,
        locks=GpuLock(f"interpreter {os.getpid()} {id(folder)}", folder),
        make_arena=lambda nbytes: HostArena.create(arenas, nbytes),
        worker_environment={ARENAS: str(arenas)},
        limit=limit,
        energy_mj=lambda run: None,
        has_clocks=False,
        has_tools=False,
    )


def _cuda(index: int, folder: Path, target: str, allow_busy: bool) -> Machine:
    import torch

    if not torch.cuda.is_available():
        raise EnvironmentUnusableError(
            "no usable NVIDIA GPU", "set evaluator.type to cpu; kernevo doctor says what works"
        )
    if index >= torch.cuda.device_count():
        raise EnvironmentUnusableError(
            f"there is no GPU {index}, only {torch.cuda.device_count()}", "set evaluator.device or CUDA_VISIBLE_DEVICES"
        )
    torch.cuda.set_device(index)
    properties = torch.cuda.get_device_properties(index)
    uuid = f"GPU-{properties.uuid}"
    free, _ = torch.cuda.mem_get_info(index)
    gpu, driver = _nvml(uuid)
    users = other_users(gpu, {os.getpid()}) if gpu is not None else ""
    if users and not allow_busy:
        raise EnvironmentUnusableError(
            f"GPU {index} ({properties.name}) is in use by {users}",
            "wait for it, choose another with evaluator.device, or set evaluator.allow_busy: true",
        )
    locks = GpuLock(uuid)
    identity = GpuIdentity(uuid=uuid, name=str(properties.name), driver=driver, torch=torch.__version__)
    with locks.exclusive(), TORCH:
        ceilings = ceilings_of(identity, lambda: measure_ceilings(CudaDevice(), identity))

    def limit(task: Task, workload: Workload, moved: int) -> Limit:
        tf32 = task.allow_tf32 or "tf32" in task.input_precisions
        given = (workload.bytes_moved or moved, workload.flops, task.dtype, tf32)
        return Limit(ceilings.speed_of_light_ms(*given) or 0.0, ceilings.floor_ms(*given) or 0.0)

    return Machine(
        platform="cuda",
        device=f"cuda:{index}",
        target=str(properties.name),
        memory_bytes=free,
        locks=locks,
        make_arena=CudaArena.create,
        worker_environment={"CUDA_VISIBLE_DEVICES": uuid},
        limit=limit,
        energy_mj=lambda run: _millijoules(measure_energy(gpu, run, time.perf_counter)),
        has_clocks=True,
        has_tools=True,
    )


def _nvml(uuid: str) -> tuple[Gpu | None, str]:
    """NVML's view of the GPU and the driver's version; None and "unknown" without NVML."""
    try:
        gpu = Gpu(uuid)
        return gpu, gpu.driver_version()
    except NvmlUnavailableError as error:
        logger.warning("energy and other users of the GPU are unknown: %s", error)
        return None, "unknown"


def _millijoules(energy: Energy) -> float | None:
    return None if energy.joules_per_call is None else energy.joules_per_call * 1e3


_FOUND: dict[str, Callable[[int, Path, str, bool], Machine]] = {"cuda": _cuda, "interpreter": _interpreter}
