"""The one seam to the GPU inside a worker: a clock on the device, a clock on the host, a cold cache.

`CudaDevice` must be made before a candidate is loaded. It keeps hold of the compiled functions it needs, so that a
candidate which later replaces `torch.cuda.Event`, `torch.cuda.synchronize` or `time.perf_counter` replaces them for
itself only; the types behind them are built in and refuse assignment.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any, Protocol

L2_FLUSHES = 2
"""The buffer that pushes everything else out of L2 is this many times as large."""


class Device(Protocol):
    """What timing needs of a device."""

    persisting_reset: bool
    """Whether `flush_l2` also demotes the lines that a kernel asked L2 to keep."""

    def stamp(self) -> object:
        """A point in time on the device's stream, behind all work that the stream was given so far."""
        ...

    def elapsed_ms(self, begin: Any, end: Any) -> float:
        """Device milliseconds between two stamps that have both been reached."""
        ...

    def synchronize(self) -> None:
        """Wait until every stream of the device is idle."""
        ...

    def flush_l2(self) -> None:
        """Queue work that leaves nothing of earlier work in L2."""
        ...

    def idle(self, seconds: float) -> None:
        """Queue nothing but waiting, about so long."""
        ...

    def now(self) -> float:
        """Monotonic host seconds."""
        ...

    def memory_used(self) -> int:
        """Bytes of device memory that this process's tensors hold."""
        ...


class CudaDevice:
    """The current CUDA device and the stream that is current when this is made.

    Stamps and flushes stay on that stream, whatever stream a candidate makes current afterwards.
    """

    def __init__(self) -> None:
        import torch

        stream: Any = torch.cuda.current_stream()
        properties = torch.cuda.get_device_properties(stream.device_index)
        buffer = torch.empty(L2_FLUSHES * l2_bytes(properties), dtype=torch.uint8, device="cuda")
        self._stream = stream
        self._stream_ids = (stream.stream_id, stream.device_index, stream.device_type)
        self._event_type = torch._C._CudaEventBase
        self._record = torch._C._CudaEventBase.record
        self._elapsed = torch._C._CudaEventBase.elapsed_time
        self._synchronize = torch._C._cuda_synchronize
        self._set_stream = torch._C._cuda_setStream
        self._overwrite = buffer.zero_
        self._allocated = torch.cuda.memory_allocated
        self._now = time.perf_counter
        self._sleep: Callable[[int], object] = torch.cuda._sleep
        self._cycles_per_s = 1.0
        self._cycles_per_s = self._measure_cycles()
        self._reset = _persisting_reset()
        self.persisting_reset = self._reset is not None

    def stamp(self) -> object:
        """An event recorded on the stream."""
        event = self._event_type(enable_timing=True)
        self._record(event, self._stream)
        return event

    def elapsed_ms(self, begin: Any, end: Any) -> float:
        """Milliseconds between two events; the resolution is about half a microsecond."""
        return self._elapsed(begin, end)

    def synchronize(self) -> None:
        """Wait for all streams of the device. Raises RuntimeError when work on it has failed."""
        self._synchronize()

    def flush_l2(self) -> None:
        """Demote persisting lines, then overwrite twice the size of L2 on the stream."""
        stream_id, device_index, device_type = self._stream_ids
        self._set_stream(stream_id=stream_id, device_index=device_index, device_type=device_type)
        if self._reset is not None:
            self._reset()
        self._overwrite()

    def idle(self, seconds: float) -> None:
        """Let the stream wait."""
        if seconds > 0:
            self._sleep(int(seconds * self._cycles_per_s))

    def _measure_cycles(self) -> float:
        """Cycles of a waiting kernel per second; the first run of it loads its code."""
        cycles = 2_000_000
        for _ in range(2):
            begin = self.stamp()
            self._sleep(cycles)
            end = self.stamp()
            self.synchronize()
        return cycles / (self.elapsed_ms(begin, end) / 1e3)

    def now(self) -> float:
        """Seconds of `time.perf_counter`."""
        return self._now()

    def memory_used(self) -> int:
        """Bytes held by live tensors of this process's CUDA allocator."""
        return self._allocated()


def l2_bytes(properties: Any) -> int:
    """L2 size from `torch.cuda.get_device_properties`, in bytes."""
    return int(properties.L2_cache_size)


def _persisting_reset() -> Callable[[], int] | None:
    """`cuCtxResetPersistingL2Cache`, or None where driver or GPU have no such thing (before sm_80, under MIG)."""
    try:
        reset: Callable[[], int] = ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache
    except (OSError, AttributeError):
        return None
    return reset if reset() == 0 else None
