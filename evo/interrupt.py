"""Ctrl-C: the first one drains, the second one kills."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupt:
    """While entered, SIGINT and SIGTERM set `requested` once; the next one kills.

    A shell starts background jobs with SIGINT ignored, and what was ignored before would be ignored again: so the
    second signal gets Python's own handlers, not the ones found at the start.

    Outside the main thread Python allows no handlers; `request` then still works.
    """

    def __init__(self) -> None:
        self.requested = False
        self._saved: dict[signal.Signals, Any] = {}

    def request(self) -> None:
        """Ask the campaign to drain and stop."""
        self.requested = True

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._saved[number] = signal.signal(number, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.request()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        print("interrupted: finishing the candidates in flight (again to kill)", file=sys.stderr, flush=True)

    def _restore(self) -> None:
        for number, handler in self._saved.items():
            signal.signal(number, handler)
        self._saved.clear()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()
