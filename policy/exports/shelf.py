"""Turns on the disk: a sequence that can be gone through more than once and never is in memory as a whole."""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self, overload

from evaluator.errors import EnvironmentUnusableError
from policy.trajectory import decode, encode
from policy.types import Turn


class Shelf(Sequence[Turn]):
    """Append, then read. One reader at a time; the file has no name and goes with the last reference to it.

    Raises EnvironmentUnusableError when the temporary folder is full.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the shelf
        self._starts = array("Q")

    def append(self, turn: Turn) -> None:
        """Put a turn at the end."""
        try:
            self._starts.append(self._file.seek(0, 2))
            self._file.write(encode(turn))
        except OSError as error:
            raise EnvironmentUnusableError(
                f"{tempfile.gettempdir()}: cannot be written: {error.strerror or error}",
                "free space there, or set TMPDIR",
            ) from error

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, place: int) -> Turn: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Turn]: ...

    def __getitem__(self, place: int | slice) -> Turn | Sequence[Turn]:
        if isinstance(place, slice):
            return [self[index] for index in range(*place.indices(len(self)))]
        self._file.seek(self._starts[place])
        return decode(self._file.readline())

    def __iter__(self) -> Iterator[Turn]:
        return (self[place] for place in range(len(self)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
