"""Judges by task: kept while they are used, the least recently used one ended when another task comes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from evaluator.errors import HarnessError
from evaluator.foreign import ForeignTask
from evaluator.foreign_host import ForeignJudge


class Starter(Protocol):
    """Where judges come from: `evaluator.foreign_host.ForeignJudges`."""

    def start(self, task: ForeignTask, **changes: object) -> ForeignJudge:
        """A judge of the task; `changes` are settings of its own."""
        ...

    def close(self) -> None:
        """End all judges."""
        ...


class JudgeCache:
    """At most `most` judges alive. Thread-safe; whoever borrows one gives it back or throws it away.

    `most` must not be less than the number of borrowers, so that there is always one to end.
    """

    def __init__(self, starter: Starter, most: int, on_gpu: bool, allow_busy: bool = False) -> None:
        self._starter, self._most = starter, most
        self._on_gpu, self._allow_busy = on_gpu, allow_busy
        self._lock = threading.Lock()
        self._idle: OrderedDict[str, ForeignJudge] = OrderedDict()
        self._busy: dict[str, ForeignJudge] = {}
        self._ended = False
        self.started = 0
        """Judges started so far."""

    def __len__(self) -> int:
        """Judges alive."""
        return len(self._idle) + len(self._busy)

    def borrow(self, key: str, make: Callable[[], tuple[ForeignTask, dict[str, object]]]) -> ForeignJudge:
        """The judge of a task; started from `make`'s task and settings where there is none.

        Raises HarnessError when none can be started.
        """
        with self._lock:
            if self._ended:
                raise HarnessError("the server is stopping")
            judge = self._idle.pop(key, None)
            if judge is None:
                task, changes = make()
                while len(self) >= self._most:
                    self._idle.popitem(last=False)[1].close()
                judge = self._starter.start(task, **self._share(), **changes)
                self.started += 1
            self._busy[key] = judge
            return judge

    def give_back(self, key: str) -> None:
        """Keep the judge for the next job of its task."""
        with self._lock:
            self._idle[key] = self._busy.pop(key)

    def throw_away(self, key: str) -> None:
        """End the judge, which is of no more use."""
        with self._lock:
            judge = self._busy.pop(key)
        judge.close()

    def end_busy(self) -> None:
        """Kill the judges that work, whoever waits for them is told, and lend no more."""
        with self._lock:
            self._ended = True
            for judge in self._busy.values():
                judge.end()

    def close(self) -> None:
        """End those that are idle, and whatever else there is."""
        with self._lock:
            while self._idle:
                self._idle.popitem()[1].close()
        self._starter.close()

    def _share(self) -> dict[str, object]:
        """On a GPU each judge takes its part of the memory that is left, and others of ours are no strangers."""
        if not self._on_gpu:
            return {}
        return {"memory_share": 1 / (self._most - len(self)), "allow_busy": self._allow_busy or len(self) > 0}
