"""Keeps a sink that is slow, or hangs, from holding up the campaign: it works behind it, in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

from evo.candidate import Record
from evo.events import Finalists
from evo.monitors.base import Monitor, Step

WAITING = 256
"""Generations that a slow sink may lag behind; what comes on top is left out."""
GRACE_S = 10.0
"""Seconds for the sink to finish when the session ends."""


class Behind:
    """Makes a monitor and calls it in a thread. What it raises comes out of the next call, so that it is dropped."""

    def __init__(self, name: str, make: Callable[[], Monitor], grace_s: float = GRACE_S) -> None:
        self.name = name
        self._make, self._grace = make, grace_s
        self._calls: queue.Queue[Callable[[Monitor], None]] = queue.Queue(WAITING)
        self._failed: Exception | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"kernevo-{name}", daemon=True)
        self._thread.start()

    def candidate(self, record: Record) -> None:
        """Candidates are in the journal already."""

    def step(self, step: Step) -> None:
        """One generation ended."""
        self._send(lambda monitor: monitor.step(step))

    def policy(self, summary: Mapping[str, Any]) -> None:
        """What the policy asked in this session."""
        self._send(lambda monitor: monitor.policy(summary))

    def finalists(self, finalists: Finalists) -> None:
        """The best were timed again."""
        self._send(lambda monitor: monitor.finalists(finalists))

    def close(self) -> None:
        """Wait a little for what is under way. Raises what the sink raised, TimeoutError when it hangs."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join(self._grace)
        if self._failed is not None:
            raise self._failed
        if self._thread.is_alive():
            raise TimeoutError(f"it did not finish within {self._grace:.0f} s")

    def _send(self, call: Callable[[Monitor], None]) -> None:
        if self._failed is not None:
            self._ended.set()
            raise self._failed
        try:
            self._calls.put_nowait(call)
        except queue.Full:
            return  # the journal has it all

    def _work(self) -> None:
        try:
            monitor = self._make()
            while not (self._ended.is_set() and self._calls.empty()):
                try:
                    call = self._calls.get(timeout=0.2)
                except queue.Empty:
                    continue
                call(monitor)
            monitor.close()
        except Exception as error:
            self._failed = error
