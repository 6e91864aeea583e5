"""What a resume knows of a journal before it replays it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from evo import events
from evo.journal import Journal, Line, lines


@contextmanager
def no_collection() -> Iterator[None]:
    """Look for no cycles meanwhile: a replay makes a million objects, and none of them points back."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(frozen=True)
class Past:
    """A journal that was read once and found whole."""

    path: Path
    count: int = 0
    """Events."""
    length: int | None = None
    """Bytes that hold them; a torn line may follow."""
    started: events.Started | None = None
    last_batch: int | None = None
    """Number of the last batch event."""

    @classmethod
    def of(cls, path: Path) -> Past:
        """Check a journal; one that is missing or empty has no past. Raises JournalError naming a damaged line."""
        count = length = 0
        started: events.Started | None = None
        last_batch: int | None = None
        for line, size in lines(path) if path.is_file() else ():
            if line.seq == 0:
                started = line.parsed(events.Started, path)
            if line.kind == events.BATCH:
                last_batch = line.seq
            count, length = count + 1, length + size
        return cls(path, count, length, started, last_batch)

    def open(self) -> Journal:
        """The journal, to be continued."""
        return Journal(self.path, self.count, self.length)

    def lines(self) -> Iterator[Line]:
        """The events one by one, so that a long journal never is in memory as a whole."""
        found = lines(self.path)
        return (next(found)[0] for _ in range(self.count))
