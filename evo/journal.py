"""The journal: append-only, one checksummed JSON line per event, on the disk before the search is told.

A line is `{"crc": "<8 hex digits>", "seq": N, "kind": "...", "data": {...}}` where the CRC-32 covers the bytes
behind the comma after it. A last line without its newline was torn by a crash and is dropped with a warning; any
other damaged line is an error that names it, because everything behind it would be guesswork.

The controller is the only writer (the run directory's lock sees to that).
"""

from __future__ import annotations

import json
import os
import warnings
import zlib
from collections.abc import Iterator, Mapping
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
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                warnings.warn(
                    f"{path}:{number}: the last line was torn when the run stopped; it is dropped",
                    TornLineWarning,
                    stacklevel=3,
                )
                return
            yield _checked(path, number, line, expected=number - 1), len(line)


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
    """Appends events to one file; each is flushed and fsynced before `append` returns."""

    def __init__(self, path: Path, next_seq: int = 0, length: int | None = None) -> None:
        """Open for appending at `length` bytes (a torn tail behind it is cut off)."""
        self._path = path
        self._next_seq = next_seq
        self._stream: BinaryIO = path.open("ab")
        if length is not None:
            self._stream.truncate(length)
        self._length = self._stream.seek(0, os.SEEK_END)

    def append(self, kind: str, data: Mapping[str, Any]) -> Event:
        """Record one event durably. On a full disk the half-written line is taken back and the error says so."""
        event = Event(seq=self._next_seq, kind=kind, data=data)
        line = encode(event)
        try:
            self._stream.write(line)
            self._stream.flush()
            os.fsync(self._stream.fileno())
        except OSError as error:
            self._take_back()
            raise EnvironmentUnusableError(
                f"{self._path}: cannot be written: {error.strerror or error}",
                "free space on that disk, then resume the run: everything up to here is recorded",
            ) from error
        self._next_seq += 1
        self._length += len(line)
        return event

    def _take_back(self) -> None:
        # The buffered writer would try the same bytes again on close, so the descriptor is truncated directly and
        # the buffer thrown away with its file object.
        try:
            os.ftruncate(self._stream.fileno(), self._length)
        except OSError:
            return  # the torn line is then dropped by the next reader
        finally:
            raw = getattr(self._stream, "raw", None)
            if raw is not None:
                raw.close()

    def close(self) -> None:
        """Close the file; safe to call twice."""
        try:
            self._stream.close()
        except (OSError, ValueError):
            return  # append already reported it
