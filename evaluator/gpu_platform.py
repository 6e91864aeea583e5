"""What a worker of the gpu evaluator runs on: a CUDA device, or Triton's interpreter in its place.

Everything in the worker that touches a device goes through one `Platform`. `interpreter` runs the same harness without
a GPU: kernels in Triton's interpreter, clocks of the host. Its latencies mean nothing; it is there so that every rule
of the harness can be tried (and is tested) on any machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from unittest.mock import patch

from evaluator.first_config import first_config_only
from evaluator.gpu_memory import Arena, CudaArena, HostArena

if TYPE_CHECKING:
    from evaluator.device import Device


ARENAS = "KERNEVO_ARENAS"
"""Environment variable with the folder of the host's arenas."""


class ProfilerStoppedError(Exception):
    """Somebody stopped the profiler while it was looking."""


class Launch(NamedTuple):
    """One launch of a Triton kernel by the candidate."""

    kernel: str
    """Name of the jit function."""
    symbol: str
    """Name of the compiled kernel, as a profiler shows it."""


class DeviceWork(NamedTuple):
    """One piece of work on the device, as the profiler saw it."""

    name: str
    begin_ms: float
    ms: float


class Platform(Protocol):
    """The seam between the harness and what it runs on."""

    device: str
    """torch's name of the device that inputs and outputs live on."""
    timer: Device
    """Clocks, cache and memory."""
    writable: Sequence[Path]
    """What a confined worker must be able to write beside its own folder."""

    def open(self, token: Mapping[str, Any]) -> Arena:
        """Map an arena of the judge's."""
        ...

    def limit_memory(self, nbytes: int) -> None:
        """Let tensors of this process take no more than `nbytes` of the device, arenas apart."""
        ...

    def launches(self) -> AbstractContextManager[list[Launch]]:
        """Inside, every launch of a jit function is noted in the list, and happens."""
        ...

    def stubbed(self, given: list[Any]) -> AbstractContextManager[None]:
        """Inside, launches of jit functions do nothing but note the tensors they are given in `given`."""
        ...

    def profiled(self, call: Callable[[], object]) -> list[DeviceWork]:
        """Everything the device did because of `call`, on every stream, until the device was idle."""
        ...


class CudaPlatform:
    """The current CUDA device."""

    device = "cuda"

    def __init__(self) -> None:
        from evaluator.device import CudaDevice

        self.timer: Device = CudaDevice()
        self.writable: Sequence[Path] = [*sorted(Path("/dev").glob("nvidia*")), Path("/dev/shm")]

    def open(self, token: Mapping[str, Any]) -> Arena:
        """Map an arena by its IPC handle."""
        return CudaArena.open(token)

    def limit_memory(self, nbytes: int) -> None:
        """torch's allocator refuses what goes beyond."""
        import torch

        total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, nbytes / total))

    @contextmanager
    def launches(self) -> Iterator[list[Launch]]:
        """Compiled kernels are those that Triton's own cache handed to the launcher, not names somebody claims."""
        from triton.runtime.jit import JITFunction

        seen: list[Launch] = []
        original = JITFunction.run

        def run(function: Any, *args: Any, **kwargs: Any) -> Any:
            compiled = original(function, *args, **kwargs)
            if compiled is not None and not kwargs.get("warmup"):
                seen.append(Launch(function.__name__, str(compiled.name)))
            return compiled

        with patch.object(JITFunction, "run", run):
            yield seen

    @contextmanager
    def stubbed(self, given: list[Any]) -> Iterator[None]:
        """Replace the one way into a launch."""
        from triton.runtime.jit import JITFunction

        with patch.object(JITFunction, "run", _noting(given)):
            yield

    def profiled(self, call: Callable[[], object]) -> list[DeviceWork]:
        """CUPTI's activity records, through torch's profiler."""
        from torch._C._autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile

        self.timer.synchronize()
        try:
            with profile(activities=[ProfilerActivity.CUDA]) as profiler:
                call()
                self.timer.synchronize()
        except RuntimeError as error:
            if "Kineto profiler" in str(error):
                raise ProfilerStoppedError from None
            raise
        results = profiler.profiler.kineto_results
        return [
            DeviceWork(event.name(), event.start_ns() / 1e6, event.duration_ns() / 1e6)
            for event in results.events()
            if event.device_type() == DeviceType.CUDA and event.duration_ns() > 0
        ]


class HostDevice:
    """Clocks of the host for the interpreter; caches cannot be flushed."""

    persisting_reset = False

    def stamp(self) -> object:
        """Now, in processor time: work is done when the call returns, and other processes do not count."""
        return time.process_time()

    def elapsed_ms(self, begin: Any, end: Any) -> float:
        """Milliseconds between two stamps, above zero even where the clock is too coarse."""
        return float(max((end - begin) * 1e3, 1e-6))

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    def flush_l2(self) -> None:
        """No L2 of a GPU."""

    def idle(self, seconds: float) -> None:
        """Nothing runs behind the host's back, so there is nothing to wait for."""

    def now(self) -> float:
        """Host seconds."""
        return time.perf_counter()

    def memory_used(self) -> int:
        """Resident bytes of this process."""
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


class InterpreterPlatform:
    """Triton's interpreter on the host."""

    device = "cpu"

    def __init__(self) -> None:
        self.timer: Device = HostDevice()
        # The judge's arenas; a folder that holds nothing else.
        self.writable: Sequence[Path] = [Path(os.environ[ARENAS])] if ARENAS in os.environ else []
        self._tuned = ExitStack()
        self._tuned.enter_context(first_config_only())  # for as long as this process lives

    def open(self, token: Mapping[str, Any]) -> Arena:
        """Map an arena by its file."""
        return HostArena(Path(token["path"]), int(token["nbytes"]), create=False)

    def limit_memory(self, nbytes: int) -> None:
        """The host's memory has other guards."""

    @contextmanager
    def launches(self) -> Iterator[list[Launch]]:
        """Grid executors stand for compiled kernels."""
        from triton.runtime.interpreter import GridExecutor

        seen: list[Launch] = []
        original = GridExecutor.__call__

        def call(executor: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(Launch(executor.fn.__name__, executor.fn.__name__))
            return original(executor, *args, **kwargs)

        with patch.object(GridExecutor, "__call__", call):
            yield seen

    @contextmanager
    def stubbed(self, given: list[Any]) -> Iterator[None]:
        """Replace the one way into a launch."""
        from triton.runtime.interpreter import GridExecutor

        with patch.object(GridExecutor, "__call__", _noting(given)):
            yield

    def profiled(self, call: Callable[[], object]) -> list[DeviceWork]:
        """Launches of kernels and torch's operators outside of them, with their host time."""
        from triton.runtime.interpreter import GridExecutor

        work: list[DeviceWork] = []
        original = GridExecutor.__call__

        def timed(executor: Any, *args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter()
            with operators.paused():
                result = original(executor, *args, **kwargs)
            work.append(DeviceWork(executor.fn.__name__, begin * 1e3, (time.perf_counter() - begin) * 1e3))
            return result

        operators = _operator_times(work)
        with patch.object(GridExecutor, "__call__", timed), operators:
            call()
        return work


def _noting(given: list[Any]) -> Callable[..., None]:
    """Stands for a launch and keeps its tensors."""
    import torch

    def launch(function: Any, *args: Any, **kwargs: Any) -> None:
        for value in (*args, *kwargs.values()):
            held = getattr(value, "base", value)  # what a tensor descriptor describes
            if isinstance(held, torch.Tensor):
                given.append(held)

    return launch


def _operator_times(work: list[DeviceWork]) -> Any:
    """A dispatch mode that notes what torch's computing operators take; views and allocations compute nothing."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Times(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's base class is not annotated
        active = True

        @contextmanager
        def paused(self) -> Iterator[None]:
            self.active = False
            try:
                yield
            finally:
                self.active = True

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            begin = time.perf_counter()
            result = func(*args, **(kwargs or {}))
            computes = not func.is_view and "empty" not in func.name()
            if self.active and computes:
                work.append(DeviceWork(func.name(), begin * 1e3, (time.perf_counter() - begin) * 1e3))
            return result

    return Times()  # type: ignore[no-untyped-call]


def _cuda() -> Platform:
    return CudaPlatform()


def _interpreter() -> Platform:
    return InterpreterPlatform()


PLATFORMS: dict[str, Callable[[], Platform]] = {"cuda": _cuda, "interpreter": _interpreter}
