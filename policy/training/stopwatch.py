"""Where the time of a training step goes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PARTS = ("generation", "evaluation", "training")


class Stopwatch:
    """Adds up seconds by part. A part that is timed inside of another does not count for the outer one."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._started = clock()
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._inner = [0.0]

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what happens inside for `name`."""
        begun = self._clock()
        self._inner.append(0.0)
        try:
            yield
        finally:
            whole = self._clock() - begun
            self._spent[name] += whole - self._inner.pop()
            self._inner[-1] += whole

    def lap(self) -> dict[str, float]:
        """Seconds since the last lap: each part, `overhead` (everything else) and `step` (all)."""
        now = self._clock()
        whole = now - self._started
        parts = {name: self._spent[name] for name in PARTS}
        self._started, self._spent, self._inner = now, defaultdict(float), [0.0]
        return {**parts, "overhead": whole - sum(parts.values()), "step": whole}
