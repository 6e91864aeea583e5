"""Who may use a GPU: many at once for compiling and checking, one alone for timing.

Both kinds of lock hold between threads and between processes, so that two campaigns on one machine never time at
once. They are `flock`s on two files per GPU, which the system drops when their holder dies. `turn` is held briefly by
whoever enters and for the whole wait by whoever wants the GPU alone: newcomers queue behind a waiting timer, so timing
is never starved by an endless stream of checks.

Every holder opens the files itself: `flock` belongs to the open file, so two threads exclude each other as two
processes do. A thread must not ask for the lock that it already holds.

Emptying the GPU for one timer costs as much as timing itself: everybody who checks must come to an end. So the threads
of one process that wait to be alone are let in one after the other, for `BATCH_SECONDS` at most, before others may
check again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evaluator.errors import EnvironmentUnusableError

BATCH_SECONDS = 6.0
"""How long the timers of one process may follow each other, in seconds; the last one may exceed it."""


def default_folder() -> Path:
    """`$XDG_RUNTIME_DIR/kernevo`, or `kernevo-UID` in the folder for temporary files."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base) / "kernevo" if base else Path(tempfile.gettempdir()) / f"kernevo-{os.getuid()}"


class GpuLock:
    """The lock of one GPU, named by its UUID. Thread-safe; make one per process or many, they are all the same lock."""

    def __init__(self, uuid: str, folder: Path | None = None) -> None:
        self._folder = folder or default_folder()
        name = hashlib.sha256(uuid.encode()).hexdigest()[:16]
        self._turn = self._folder / f"gpu-{name}.turn"
        self._use = self._folder / f"gpu-{name}.use"
        self._line = threading.Condition()
        self._alone = False
        self._waiting = 0
        self._handed_on: tuple[int, int] | None = None
        self._since = 0.0

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Inside, nobody times on this GPU. Raises `EnvironmentUnusableError` when the lock's folder is unusable."""
        self._prepare()
        with _held(self._turn, fcntl.LOCK_SH):
            use = _acquire(self._use, fcntl.LOCK_SH)
        try:
            yield
        finally:
            os.close(use)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Inside, nobody else uses this GPU. Raises `EnvironmentUnusableError` like `shared`."""
        self._prepare()
        held = self._enter()
        try:
            yield
        finally:
            self._leave(held)

    def _enter(self) -> tuple[int, int]:
        """Both files locked: by whoever was alone before, or anew."""
        with self._line:
            self._waiting += 1
            try:
                self._line.wait_for(lambda: not self._alone)
                self._alone = True
                held, self._handed_on = self._handed_on, None
            except BaseException:
                self._release_unclaimed()
                raise
            finally:
                self._waiting -= 1
        if held is not None:
            return held
        try:
            turn = _acquire(self._turn, fcntl.LOCK_EX)
            try:
                held = turn, _acquire(self._use, fcntl.LOCK_EX)
            except BaseException:
                os.close(turn)
                raise
        except BaseException:
            with self._line:
                self._alone = False
                self._line.notify()
            raise
        self._since = time.monotonic()
        return held

    def _leave(self, held: tuple[int, int]) -> None:
        """Hand the files on to the next in line, or close them."""
        with self._line:
            if self._waiting and time.monotonic() - self._since < BATCH_SECONDS:
                self._handed_on = held
            else:
                _close(held)
            self._alone = False
            self._line.notify()

    def _release_unclaimed(self) -> None:
        """Somebody in the line gives up: what was handed on to it must not stay locked."""
        if self._handed_on is not None and self._waiting == 1:
            _close(self._handed_on)
            self._handed_on = None

    def _prepare(self) -> None:
        hint = "set XDG_RUNTIME_DIR to a folder that only you can write to"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self._folder.lstat()
        except OSError as error:
            raise EnvironmentUnusableError(f"{self._folder}: no folder for GPU locks: {error.strerror}", hint) from None
        # In a folder that everybody can write to, someone else may have made ours first.
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise EnvironmentUnusableError(f"{self._folder}: belongs to another user", hint)


@contextmanager
def _held(path: Path, kind: int) -> Iterator[None]:
    descriptor = _acquire(path, kind)
    try:
        yield
    finally:
        os.close(descriptor)


def _close(held: tuple[int, int]) -> None:
    for descriptor in reversed(held):
        os.close(descriptor)


def _acquire(path: Path, kind: int) -> int:
    """An open file whose lock lasts until it is closed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, kind)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
