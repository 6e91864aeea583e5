"""The library's file: one writer at a time, made anew from its runs when it is damaged or of an older version.

    library.sqlite         derived: kernels, their sources and the word index
    library.sqlite.runs    one JSON string per line: the folder of every run that was added; the writers' lock

A file that is put aside is kept beside the new one and named in a warning, so that kernels of runs that are gone are
not lost. A file of a newer version, and a file that is no library of ours, is never touched.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TextIO, TypeVar

from evaluator.errors import EnvironmentUnusableError, KernevoError, UsageError
from evo.run import Run

VERSION = 1
"""Of the tables below; a file of an older one is built anew."""
APPLICATION = 0x4B65726E
"""`Kern`: SQLite's application id, by which we know our own files."""
BUSY_S = 60.0
"""Longest wait of a reader for a writer."""

_TABLES = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
CREATE TABLE sources (sha TEXT PRIMARY KEY, text BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE kernels (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    run TEXT NOT NULL,
    task TEXT NOT NULL,
    sha TEXT NOT NULL REFERENCES sources (sha),
    facts TEXT NOT NULL
);
CREATE INDEX kernels_of_run ON kernels (run);
CREATE INDEX kernels_of_task ON kernels (task);
CREATE VIRTUAL TABLE words USING fts5 (body, tokenize = "unicode61 remove_diacritics 0 tokenchars '_'");
"""

Insert = Callable[[sqlite3.Connection, Run], int]
"""Puts a run into the database."""
ResultT = TypeVar("ResultT")


class LibraryWarning(UserWarning):
    """The library was built anew, or a run that it should hold is gone."""


class _UnusableError(Exception):
    """The file must be built anew. `suffix` is for the name under which it is kept."""

    def __init__(self, why: str, suffix: str) -> None:
        super().__init__(why)
        self.suffix = suffix


def reading(path: Path, insert: Insert, read: Callable[[sqlite3.Connection], ResultT]) -> ResultT:
    """What `read` makes of the database. A damaged or old file is built anew first.

    Raises UsageError where there is no library, or one of a newer version, EnvironmentUnusableError where it cannot be
    read.
    """
    if not path.exists() and not _list_of(path).exists():
        raise UsageError(f"{path}: no library", "kernevo library add RUN… makes one; --library names another")
    with _explained(path):
        try:
            return _read(path, read)
        except _UnusableError:
            with _locked(path) as runs:
                _usable(path, runs, insert, read)
            return _read(path, read)


def _read(path: Path, read: Callable[[sqlite3.Connection], ResultT]) -> ResultT:
    try:
        with closing(_opened(path)) as database:
            return read(database)
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            raise
        raise _UnusableError(f"it is damaged ({error})", "damaged") from error
    except ValueError as error:  # a kernel that does not parse: its checksum is nobody's, so that SQLite reads it
        raise _UnusableError("it holds what this version cannot read", "damaged") from error


@contextmanager
def writing(path: Path, added: Sequence[Path], insert: Insert) -> Iterator[sqlite3.Connection]:
    """The database in one transaction, kept when the block ends well. `added` names the runs that are put into it.

    Another writer is waited for. A missing file is made, a damaged or old one is built anew first.
    """
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path) as runs:
            _usable(path, runs, insert, lambda database: None)
            _remember(runs, added)
            with closing(_opened(path)) as database, database:
                database.execute("BEGIN IMMEDIATE")
                yield database


def _usable(path: Path, runs: TextIO, insert: Insert, read: Callable[[sqlite3.Connection], object]) -> None:
    """Build the file where it is missing, unusable, or not to be read by `read`.

    Another process may have built it while the lock was awaited.
    """
    known = _runs_of(runs)
    try:
        if path.exists() and path.stat().st_size:
            _read(path, read)
            return
        why, suffix = ("it is missing" if known else ""), ""
    except _UnusableError as error:
        why, suffix = str(error), error.suffix
    _build(path, known, insert, why, suffix)


def _opened(path: Path) -> sqlite3.Connection:
    """A checked connection. Raises _UnusableError, UsageError for a file that is not ours or newer."""
    if not path.exists():
        raise _UnusableError("it is missing", "")
    database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    try:
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION:
            raise _foreign(path)
        if version > VERSION:
            raise UsageError(
                f"{path}: a library of version {version}, this Kernevo knows up to {VERSION}",
                "update Kernevo, or name another library",
            )
        if version < VERSION:
            raise _UnusableError(f"it is of version {version}", f"v{version}")
        (state,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if state != "ok":
            raise _UnusableError(f"it is damaged ({' '.join(state.split())})", "damaged")
    except sqlite3.DatabaseError as error:
        database.close()
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB and not _list_of(path).exists():
            raise _foreign(path) from None
        if not _is_damage(error):
            raise
        raise _UnusableError(f"it is damaged ({error})", "damaged") from error
    except BaseException:
        database.close()
        raise
    return database


def _foreign(path: Path) -> UsageError:
    return UsageError(f"{path}: no library of Kernevo's; nothing was changed", "give another path")


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _build(path: Path, folders: Sequence[str], insert: Insert, why: str, suffix: str) -> None:
    """Build the file from the runs that were added to it; the old one, if any, is kept under another name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    gone = []
    try:
        with closing(sqlite3.connect(temporary, isolation_level=None)) as database:
            database.executescript(_TABLES)
            database.execute("BEGIN")
            for folder in folders:
                database.execute("SAVEPOINT run")
                try:
                    insert(database, Run.load(folder))
                except KernevoError as error:
                    database.execute("ROLLBACK TO run")
                    gone.append(f"{folder} ({error.message})")
            database.execute("COMMIT")
        kept = _put_aside(path, suffix) if suffix else None
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if why:
        where = f"; the old file is kept as {kept}" if kept else ""
        _warn(f"{path}: built anew from {len(folders) - len(gone)} runs, because {why}{where}")
    for run in gone:
        _warn(f"{path}: without the kernels of {run}")


def _put_aside(path: Path, suffix: str) -> Path:
    """Rename the file to a name that is free."""
    number = 0
    while (kept := path.with_name(f"{path.name}.{suffix}{f'-{number}' if number else ''}")).exists():
        number += 1
    path.rename(kept)
    return kept


def _warn(message: str) -> None:
    warnings.warn(message, LibraryWarning, stacklevel=2)


def _list_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.runs")


@contextmanager
def _locked(path: Path) -> Iterator[TextIO]:
    """The list of runs, open for appending, while this process is the only writer."""
    if not _list_of(path).exists() and path.exists() and path.stat().st_size:
        with suppress(_UnusableError):  # only what is not ours is refused, before anything is written beside it
            _opened(path).close()
    with _list_of(path).open("a+", encoding="utf-8") as runs:
        fcntl.flock(runs, fcntl.LOCK_EX)
        yield runs


def _runs_of(runs: TextIO) -> list[str]:
    """Folders of the runs that were added, in the order in which they were; a torn last line is no folder."""
    runs.seek(0)
    found: list[str] = []
    for line in runs:
        try:
            found.append(str(json.loads(line)))
        except ValueError:
            _warn(f"{runs.name}: not a folder's name: {line.strip()!r}")
    return list(dict.fromkeys(found))


def _remember(runs: TextIO, added: Sequence[Path]) -> None:
    """Note runs before the database hears of them, so that building anew finds them."""
    known = set(_runs_of(runs))
    for folder in dict.fromkeys(str(path.resolve()) for path in added):
        if folder not in known:
            runs.write(json.dumps(folder) + "\n")
    runs.flush()
    os.fsync(runs.fileno())


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what the disk and SQLite say into errors for people."""
    try:
        yield
    except OSError as error:
        raise EnvironmentUnusableError(
            f"{path}: {error.strerror or error}", "give another library, or free space and rights on that disk"
        ) from error
    except sqlite3.DatabaseError as error:
        raise EnvironmentUnusableError(
            f"{path}: {error}", "try again when its writer is done; see that disk's space and rights"
        ) from error
