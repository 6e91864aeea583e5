"""Energy per call, and whether somebody else is using the GPU."""

from __future__ import annotations

from collections.abc import Callable, Collection

from evaluator.nvml import Gpu, NvmlUnavailableError
from evaluator.types import Frozen

LEAST_SECONDS = 0.25
"""NVML's counter moves every 20 to 100 ms; over a shorter run its steps are most of what it shows."""
IDLE_BYTES = 512 << 20
"""Device memory in use below which a GPU counts as free although its users cannot be seen."""


class Energy(Frozen):
    """Energy of the whole board while a model ran, idle power included."""

    joules_per_call: float | None = None
    """None when it could not be measured."""
    watts: float | None = None
    """Mean power over the run."""
    reason: str = ""
    """Why there is no measurement."""


def measure_energy(gpu: Gpu | None, run: Callable[[], int], now: Callable[[], float]) -> Energy:
    """Energy per call of `run`, which keeps the GPU busy for at least 0.25 s and returns the number of its calls.

    `run` happens whether or not energy can be read. Nothing else may use the GPU meanwhile: the counter belongs to
    the board. `gpu` is None on a machine without NVML. Raises what `run` raises.
    """
    begin_j, reason = _counter(gpu)
    started = now()
    calls = run()
    seconds = now() - started
    end_j, reason_after = _counter(gpu)
    if begin_j is None or end_j is None:
        return Energy(reason=reason or reason_after)
    if seconds < LEAST_SECONDS:
        return Energy(reason=f"the run of {seconds:.3f} s is too short for NVML's energy counter")
    if end_j <= begin_j:
        return Energy(reason="NVML's energy counter did not move")
    return Energy(joules_per_call=(end_j - begin_j) / calls, watts=(end_j - begin_j) / seconds)


def _counter(gpu: Gpu | None) -> tuple[float | None, str]:
    if gpu is None:
        return None, "no NVML on this machine"
    try:
        return gpu.energy_j(), ""
    except NvmlUnavailableError as error:
        return None, str(error)


def other_users(gpu: Gpu, own: Collection[int] = ()) -> str:
    """Who else uses the GPU, for a message; empty when nobody does. `own` are the pids of this campaign.

    Inside a container NVML may hide other processes or number them differently, so call it before this campaign has
    started any process on the GPU: then whoever is there is somebody else. Memory that nobody seems to own counts as
    somebody's. Empty, too, when NVML does not tell.
    """
    try:
        others = [process for process in gpu.processes() if process.pid not in own]
        used = gpu.memory_used()
    except NvmlUnavailableError:
        return ""
    if others:
        return ", ".join(f"process {process.pid} ({process.name or 'unknown'})" for process in others)
    if not own and used > IDLE_BYTES:
        return f"something that cannot be seen from here holds {used >> 20} MiB of its memory"
    return ""
