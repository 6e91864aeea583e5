"""A device for tests: streams and a host on one virtual clock, on which all durations are scripted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MAIN = "main"


class FakeDevice:
    """A `Device` whose kernels take the time that they are told to take.

    Host calls cost host time, launched work starts when both the host has launched it and its stream is free, and
    `synchronize` moves the host behind all streams: enough to show everything that asynchronous launches do to
    clocks. Seconds throughout, milliseconds where `Device` has them.
    """

    persisting_reset = True

    def __init__(self, flush_s: float = 35e-6, stamp_s: float = 2e-6, queue_s: float = 5e-6) -> None:
        self.host_s = 0.0
        self.flushes = 0
        self._flush_s, self._stamp_s, self._queue_s = flush_s, stamp_s, queue_s
        self._free_s: dict[str, float] = {MAIN: 0.0}
        self.slowdown: Callable[[float], float] = lambda seconds: 1.0
        """Factor on the duration of work that starts at a time: a clock that drifts, or noise."""

    def launch(self, seconds: float, stream: str = MAIN, host_s: float | None = None) -> None:
        """Queue work on a stream; the host needs `host_s` for it."""
        self.host_s += self._queue_s if host_s is None else host_s
        start = max(self.host_s, self._free_s.get(stream, 0.0))
        self._free_s[stream] = start + seconds * self.slowdown(start)

    def join(self, waiting: str, awaited: str) -> None:
        """Later work of `waiting` starts behind the work `awaited` has now (an event that a stream waits for)."""
        self._free_s[waiting] = max(self._free_s.get(waiting, 0.0), self._free_s.get(awaited, 0.0))

    def wait(self, stream: str = MAIN) -> None:
        """The host waits for one stream."""
        self.host_s = max(self.host_s, self._free_s.get(stream, 0.0))

    def busy(self, seconds: float) -> None:
        """The host does something else."""
        self.host_s += seconds

    def stamp(self) -> object:
        """The moment at which the main stream gets here."""
        self.host_s += self._stamp_s
        self._free_s[MAIN] = max(self.host_s, self._free_s[MAIN])
        return self._free_s[MAIN]

    def elapsed_ms(self, begin: Any, end: Any) -> float:
        """Virtual milliseconds between two stamps."""
        return float(end - begin) * 1e3

    def synchronize(self) -> None:
        """The host waits for every stream."""
        self.host_s = max(self.host_s, *self._free_s.values())

    def flush_l2(self) -> None:
        """Work of fixed duration on the main stream."""
        self.flushes += 1
        self.launch(self._flush_s)

    def idle(self, seconds: float) -> None:
        """Work that does nothing, on the main stream."""
        if seconds > 0:
            self.launch(seconds)

    def now(self) -> float:
        """The host's virtual seconds."""
        return self.host_s

    def memory_used(self) -> int:
        """Nothing is ever allocated."""
        return 0
