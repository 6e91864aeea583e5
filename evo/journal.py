"""The journal: append-only, one checksummed JSON line per event, written before the search is told.

A line is `{"crc": "<8 hex digits>", "seq": N, "kind": "...", "data": {...}}` where the CRC-32 covers the bytes
behind the comma after it. A last line without its newline was torn by a crash and is dropped with a warning; any
other damaged line is an error that names it, because everything behind it would be guesswork.

The controller is the only writer (the run directory's lock sees to that).
"""

from __future__ import annotations

import json
import os
import re
import warnings
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pydantic import ValidationError

from evaluator.errors import EnvironmentUnusableError, KernevoError
from evaluator.types import Frozen

_PREFIX = b'{"crc": "'
_HEAD = len(_PREFIX) + 8 + len(b'", ')


class Event(Frozen):
    """One line of the journal."""

    seq: int
    kind: str
    data: Mapping[str, Any]


class JournalError(KernevoError):
    """A line of the journal is damaged."""


ModelT = TypeVar("ModelT", bound=Frozen)


def parsed(model: type[ModelT], data: object, path: Path, seq: int) -> ModelT:
    """An event's data as its model. Raises JournalError when another version of Kernevo wrote it."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise JournalError(
            f"{path}:{seq + 1}: not what this version writes: {field}: {first['msg']}",
            "use the Kernevo version that started the run (environment.json names it)",
        ) from None


class TornLineWarning(UserWarning):
    """The last line was half written when the process died."""


def encode(event: Event) -> bytes:
    """One line with its newline. Floats keep every bit; NaN and infinities are Python's JSON words."""
    body = json.dumps({"seq": event.seq, "kind": event.kind, "data": dict(event.data)})[1:].encode() + b"\n"
    return _PREFIX + f"{zlib.crc32(body):08x}".encode() + b'", ' + body


@dataclass(frozen=True, slots=True)
class Line:
    """A checked line whose data nobody has read yet."""

    seq: int
    kind: str
    data: bytes
    """JSON."""

    def parsed(self, model: type[ModelT], path: Path) -> ModelT:
        """The data as its model. Raises JournalError when another version of Kernevo wrote it."""
        try:
            return model.model_validate_json(self.data)
        except ValidationError:
            # Half a surrogate pair is JSON to Python alone, which also says better what is wrong.
            return parsed(model, json.loads(self.data), path, self.seq)


_LINE = re.compile(rb'\{"crc": "([0-9a-f]{8})", "seq": (\d+), "kind": "([a-z_]+)", "data": ')


def lines(path: Path) -> Iterator[tuple[Line, int]]:
    """Every whole line with its length in bytes: what `read` gives, at a tenth of its price and one at a time."""
    return ((_line(path, number, raw), len(raw)) for number, raw in _raw(path))


def _line(path: Path, number: int, raw: bytes) -> Line:
    head = _LINE.match(raw)
    if head is None or int(head[1], 16) != zlib.crc32(raw[_HEAD:]) or int(head[2]) != number - 1:
        _checked(path, number, raw, expected=number - 1)
        raise JournalError(f"{path}:{number}: damaged line: not written by Kernevo", "restore it from a copy")
    return Line(number - 1, head[3].decode(), raw[head.end() : -2])


class Follower:
    """Reads a journal that another process writes: each whole line once. What is half written waits for its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._number = 0

    def news(self) -> Iterator[Line]:
        """The lines since the last call. Raises JournalError for a damaged one."""
        with self._path.open("rb") as stream:
            stream.seek(self._read)
            for raw in stream:
                if not raw.endswith(b"\n"):
                    return
                line = _line(self._path, self._number + 1, raw)
                self._read += len(raw)
                self._number += 1
                yield line


def decode(line: bytes) -> Event:
    """The event of one whole line. Raises ValueError saying what is wrong with it."""
    if not line.startswith(_PREFIX) or line[_HEAD - 3 : _HEAD] != b'", ':
        raise ValueError("it does not start with a checksum")
    body = line[_HEAD:]
    stated = line[len(_PREFIX) : len(_PREFIX) + 8]
    actual = f"{zlib.crc32(body):08x}".encode()
    if stated != actual:
        raise ValueError(f"its checksum is {actual.decode()}, not {stated.decode(errors='replace')}")
    raw = json.loads(b"{" + body)
    # Construct without validation: the checksum has already vouched for the line, and a resume reads 10^5.
    return Event.model_construct(seq=raw["seq"], kind=raw["kind"], data=raw["data"])


def read(path: Path) -> tuple[list[Event], int]:
    """All events, and the length in bytes of the part that holds them.

    Raises JournalError naming file and line for any damage but a torn last line (TornLineWarning).
    """
    events: list[Event] = []
    good = 0
    for event, length in _whole(path):
        events.append(event)
        good += length
    return events, good


def stream(path: Path) -> Iterator[Event]:
    """The events one by one, as `read` gives them, whatever the length of the file."""
    return (event for event, _ in _whole(path))


def _whole(path: Path) -> Iterator[tuple[Event, int]]:
    """Every whole line's event and the line's length in bytes."""
    return ((_checked(path, number, line, expected=number - 1), len(line)) for number, line in _raw(path))


def _raw(path: Path) -> Iterator[tuple[int, bytes]]:
    """Every line with its number, up to one that was torn."""
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.endswith(b"\n"):
                warnings.warn(
                    f"{path}:{number}: the last line was torn when the run stopped; it is dropped",
                    TornLineWarning,
                    stacklevel=4,
                )
                return
            yield number, line


def _checked(path: Path, number: int, line: bytes, expected: int) -> Event:
    try:
        event = decode(line)
    except (ValueError, KeyError) as error:
        raise JournalError(
            f"{path}:{number}: damaged line: {error}",
            f"restore the file from a copy, or cut it before line {number} and resume from there",
        ) from None
    if event.seq != expected:
        raise JournalError(
            f"{path}:{number}: event {event.seq} where event {expected} belongs: lines are missing or doubled",
            "restore the file from a copy; two programs must never write one run",
        )
    return event


class Journal:
    """Appends events to one file, each on the disk before `append` returns unless its writer cannot wait.

    What is not waited for is synced at once by a thread of its own, several lines together where they come faster
    than the disk; the next `append` that waits covers them too.
    """

    def __init__(self, path: Path, next_seq: int = 0, length: int | None = None) -> None:
        """Open for appending at `length` bytes (a torn tail behind it is cut off)."""
        self._path = path
        self._next_seq = next_seq
        self._stream: BinaryIO = path.open("ab")
        if length is not None:
            self._stream.truncate(length)
        self._written = self._synced = self._stream.seek(0, os.SEEK_END)
        self._syncing = ThreadPoolExecutor(1, thread_name_prefix="kernevo-journal")
        self._sent: Future[None] | None = None
        self._failed: OSError | None = None

    def append(self, kind: str, data: Mapping[str, Any], *, wait: bool = True) -> Event:
        """Record one event. On a full disk what the disk did not take is taken back and the error says so.

        With `wait` it and all before it outlive a power cut when this returns, without only the end of the process.
        """
        event = Event(seq=self._next_seq, kind=kind, data=data)
        line = encode(event)
        try:
            self._stream.write(line)
            self._stream.flush()
            self._written += len(line)
            if wait:
                self._settle()
                self._sync()
            else:
                self._sent = self._syncing.submit(self._sync_behind)
            if self._failed is not None:
                raise self._failed
        except OSError as error:
            self._take_back()
            raise EnvironmentUnusableError(
                f"{self._path}: cannot be written: {error.strerror or error}",
                "free space on that disk, then resume the run: everything up to here is recorded",
            ) from error
        self._next_seq += 1
        return event

    def _sync(self) -> None:
        """Bring all that was written to the disk."""
        written = self._written
        if written > self._synced:
            os.fsync(self._stream.fileno())
            self._synced = written

    def _sync_behind(self) -> None:
        try:
            self._sync()
        except OSError as error:
            self._failed = error

    def _settle(self) -> None:
        """Wait for the thread. Raises what it met: a disk that failed once may claim success the next time."""
        if self._sent is not None:
            self._sent.result()
        if self._failed is not None:
            raise self._failed

    def _take_back(self) -> None:
        # The buffered writer would try the same bytes again on close, so the descriptor is truncated directly and
        # the buffer thrown away with its file object.
        try:
            os.ftruncate(self._stream.fileno(), self._synced)
        except OSError:
            return  # the torn line is then dropped by the next reader
        finally:
            raw = getattr(self._stream, "raw", None)
            if raw is not None:
                raw.close()

    def close(self) -> None:
        """Close the file with everything on the disk; safe to call twice."""
        self._syncing.shutdown()
        try:
            if self._failed is None:
                self._sync()
            self._stream.close()
        except (OSError, ValueError):
            return  # append already reported it
