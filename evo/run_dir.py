"""The files of one run and who may write them.

    config.yaml  config.resolved.json  environment.json  journal.jsonl  kernels/<sha>.py  lock
    trajectories.jsonl  metrics.jsonl  optuna.journal  playbook.json  elites/  logs/  report.html

`journal.jsonl` and `kernels/` are the truth; everything on the second line can be rebuilt from them.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TextIO

from evaluator.errors import EnvironmentUnusableError, KernevoError, UsageError
from evaluator.types import KernelSource

WRITERS = 8
"""Sources written at once."""
SOURCES = 512
"""Texts kept in memory, the ones read last: survivors, elites and a batch are fewer."""


class RunDir:
    """Paths of one run, its kernel store, and the lock of its single writer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: TextIO | None = None
        self._writers = ThreadPoolExecutor(WRITERS, thread_name_prefix="kernevo-store")
        self._read = lru_cache(maxsize=SOURCES)(self._read_source)

    @property
    def journal(self) -> Path:
        """The truth."""
        return self.path / "journal.jsonl"

    @property
    def config_yaml(self) -> Path:
        """The user's file, byte for byte."""
        return self.path / "config.yaml"

    @property
    def config_resolved(self) -> Path:
        """Every setting with its default, as JSON."""
        return self.path / "config.resolved.json"

    @property
    def environment(self) -> Path:
        """Versions and hardware of the first session."""
        return self.path / "environment.json"

    @property
    def kernels(self) -> Path:
        """Folder of candidate sources by SHA-256."""
        return self.path / "kernels"

    @property
    def elites(self) -> Path:
        """Folder of the best structures, written at the end."""
        return self.path / "elites"

    def create(self) -> None:
        """Make the folder. Raises UsageError when it is already used, EnvironmentUnusableError when it can't be."""
        if not self._unused():
            raise UsageError(
                f"{self.path}: already used; nothing was overwritten",
                f"kernevo resume {self.path} continues it; --name NEW starts another",
            )
        try:
            self.kernels.mkdir(parents=True, exist_ok=True)
            (self.path / "logs").mkdir(exist_ok=True)
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def _unused(self) -> bool:
        # A process that was killed before its first journal line leaves only these, and nothing to lose.
        folders = {"kernels", "logs"}
        ours = folders | {"lock", "config.yaml", "config.resolved.json", "environment.json", "playbook.given.json"}
        if not self.path.exists():
            return True
        if not self.path.is_dir():
            return False
        names = {entry.name for entry in self.path.iterdir() if not entry.name.endswith(".tmp")}
        left_over = "kernels" in names and names <= (ours if "lock" in names else folders)
        return not names or (left_over and not any(self.kernels.iterdir()) and not self.in_use)

    def lock(self) -> None:
        """Become the only writer. Raises UsageError when another process already is."""
        try:
            stream = (self.path / "lock").open("a+", encoding="utf-8")
        except OSError as error:
            raise _unwritable(self.path, error) from error
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            stream.close()
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            raise UsageError(
                f"{self.path}: another process is writing this run",
                "wait for it, stop it with Ctrl-C, or choose another run",
            ) from None
        self._lock = stream

    def unlock(self) -> None:
        """Give the lock back; safe to call twice."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def in_use(self) -> bool:
        """Whether a living process writes this run."""
        if self._lock is not None:
            return True
        try:
            with (self.path / "lock").open("r", encoding="utf-8") as stream:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    def write_atomically(self, path: Path, text: str) -> None:
        """Write a whole file or nothing. Raises EnvironmentUnusableError on a full or read-only disk."""
        self.write_parts_atomically(path, [text])

    def write_parts_atomically(self, path: Path, parts: Iterable[str]) -> None:
        """`write_atomically` for a text that never is in memory as a whole."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with temporary.open("w", encoding="utf-8", errors="surrogatepass", newline="") as stream:
                stream.writelines(parts)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise _unwritable(path, error) from error

    def store(self, sources: Iterable[KernelSource]) -> None:
        """Put sources on the disk under their SHA-256, before this returns; what is kept already costs nothing."""
        new = {f"{source.sha}.py": source.text for source in sources}
        missing = [(self.kernels / name, text) for name, text in new.items() if not (self.kernels / name).exists()]
        if missing:
            # A disk takes many files at once in little more time than one.
            list(self._writers.map(lambda item: self.write_atomically(*item), missing))

    def source(self, sha: str) -> KernelSource:
        """A stored source. Raises KernevoError when the file is missing or was changed."""
        return self._read(sha)

    def _read_source(self, sha: str) -> KernelSource:
        path = self.kernels / f"{sha}.py"
        try:
            with path.open(encoding="utf-8", errors="surrogatepass", newline="") as stream:
                source = KernelSource(text=stream.read())
        except OSError as error:
            raise KernevoError(
                f"{path}: {error.strerror}", "restore the kernels/ folder of this run from a copy"
            ) from error
        if source.sha != sha:
            raise KernevoError(f"{path}: the file was changed after it was judged", "restore it from a copy")
        return source


def _unwritable(path: Path, error: OSError) -> EnvironmentUnusableError:
    return EnvironmentUnusableError(
        f"{path}: cannot be written: {error.strerror or error}",
        "choose another folder with runs_dir (or --set runs_dir=…), or free space on that disk",
    )
