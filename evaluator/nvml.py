"""What the driver says of a GPU, through its management library (NVML): energy, power, clocks, who uses it.

Read-only by design: nothing here changes a clock, a limit or a mode. In the judge's process only; a worker must not
reach the driver's management interface.
"""

from __future__ import annotations

import ctypes
from typing import Any

from evaluator.types import Frozen

LIBRARY = "libnvidia-ml.so.1"
_INSUFFICIENT_SIZE = 7
_CLOCK_SM = 1
_MEMORY_V2 = 2
_MOST_PROCESSES = 256
_UNKNOWN_BYTES = (1 << 64) - 1


class NvmlUnavailableError(Exception):
    """NVML or one of its readings is not to be had on this machine; the message says why."""


class GpuProcess(Frozen):
    """A process that has a context on a GPU."""

    pid: int
    """In the host's numbering, which a container's own numbering may not share."""
    name: str
    memory_bytes: int | None


class Reading(Frozen):
    """A GPU's state at one moment; None where the GPU does not tell."""

    sm_clock_mhz: int | None
    power_w: float | None


class _ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_v2_t."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("usedGpuMemory", ctypes.c_ulonglong),
        ("gpuInstanceId", ctypes.c_uint),
        ("computeInstanceId", ctypes.c_uint),
    )


class _Memory(ctypes.Structure):
    """nvmlMemory_v2_t."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class Gpu:
    """One GPU by its UUID. Thread-safe, as NVML is."""

    def __init__(self, uuid: str, library: Any = None) -> None:
        """Raises `NvmlUnavailableError` without NVML, or when it does not know the GPU.

        `uuid` may lack the `GPU-` that NVML wants and torch leaves out.
        """
        self.uuid = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        self._library = library if library is not None else _load()
        self._call("nvmlInit_v2")
        self._handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByUUID", self.uuid.encode(), ctypes.byref(self._handle))

    def driver_version(self) -> str:
        """E.g. `580.82.07`. Raises `NvmlUnavailableError`."""
        text = ctypes.create_string_buffer(96)
        self._call("nvmlSystemGetDriverVersion", text, ctypes.c_uint(len(text)))
        return text.value.decode(errors="replace")

    def energy_j(self) -> float:
        """Joules since the driver was loaded, in steps of a millijoule. Raises `NvmlUnavailableError`."""
        millijoules = ctypes.c_ulonglong()
        self._call("nvmlDeviceGetTotalEnergyConsumption", self._handle, ctypes.byref(millijoules))
        return millijoules.value / 1e3

    def reading(self) -> Reading:
        """SM clock and board power now."""
        clock, milliwatts = ctypes.c_uint(), ctypes.c_uint()
        has_clock = self._try("nvmlDeviceGetClockInfo", self._handle, ctypes.c_uint(_CLOCK_SM), ctypes.byref(clock))
        has_power = self._try("nvmlDeviceGetPowerUsage", self._handle, ctypes.byref(milliwatts))
        return Reading(
            sm_clock_mhz=clock.value if has_clock else None, power_w=milliwatts.value / 1e3 if has_power else None
        )

    def memory_used(self) -> int:
        """Bytes that processes use, without what the driver reserves. Raises `NvmlUnavailableError`."""
        memory = _Memory(version=ctypes.sizeof(_Memory) | _MEMORY_V2 << 24)
        self._call("nvmlDeviceGetMemoryInfo_v2", self._handle, ctypes.byref(memory))
        return int(memory.used)

    def processes(self) -> list[GpuProcess]:
        """Processes with a compute context, by pid. Raises `NvmlUnavailableError`."""
        found = (_ProcessInfo * _MOST_PROCESSES)()
        count = ctypes.c_uint(len(found))
        self._call("nvmlDeviceGetComputeRunningProcesses_v3", self._handle, ctypes.byref(count), found)
        shown = [
            GpuProcess(
                pid=info.pid,
                name=self._process_name(info.pid),
                memory_bytes=None if info.usedGpuMemory == _UNKNOWN_BYTES else info.usedGpuMemory,
            )
            for info in found[: count.value]
        ]
        return sorted(shown, key=lambda process: process.pid)

    def _process_name(self, pid: int) -> str:
        text = ctypes.create_string_buffer(256)
        known = self._try("nvmlSystemGetProcessName", ctypes.c_uint(pid), text, ctypes.c_uint(len(text)))
        return text.value.decode(errors="replace") if known else ""

    def _try(self, name: str, *arguments: Any) -> bool:
        try:
            self._call(name, *arguments)
        except NvmlUnavailableError:
            return False
        return True

    def _call(self, name: str, *arguments: Any) -> None:
        function = getattr(self._library, name, None)
        if function is None:
            raise NvmlUnavailableError(f"this driver has no {name}")
        code = function(*arguments)
        if code == _INSUFFICIENT_SIZE:
            raise NvmlUnavailableError(f"{name}: more than {_MOST_PROCESSES} entries")
        if code != 0:
            raise NvmlUnavailableError(f"{name}: {self._error(code)}")

    def _error(self, code: int) -> str:
        describe = self._library.nvmlErrorString
        describe.restype = ctypes.c_char_p
        return (describe(code) or b"unknown error").decode(errors="replace")


def _load() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise NvmlUnavailableError(f"no NVML on this machine: {error}") from None
