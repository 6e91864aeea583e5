"""Side-by-side differences of two sources, bounded whatever the sources hold."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from evo.report.text import clip_line

CONTEXT = 3
MAX_LINES = 3000
"""Lines of each side that are compared: matching is quadratic in the worst case."""
MAX_ROWS = 400


@dataclass(frozen=True)
class DiffRow:
    """One row: `same`, `change`, `add`, `remove`, or a `gap` of equal lines left out."""

    kind: str
    left_number: int | None = None
    left: str = ""
    right_number: int | None = None
    right: str = ""


@dataclass(frozen=True)
class Diff:
    """The rows of a difference and how much it changes."""

    rows: tuple[DiffRow, ...]
    added: int
    removed: int
    cut: bool
    """Whether something was left out because it was too large."""


def side_by_side(old: str, new: str) -> Diff:
    """Differences of `old` and `new` with three lines of context."""
    left, right = old.split("\n"), new.split("\n")
    cut = max(len(left), len(right)) > MAX_LINES
    left, right = left[:MAX_LINES], right[:MAX_LINES]
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    opcodes = matcher.get_opcodes()
    rows: list[DiffRow] = []
    for group in matcher.get_grouped_opcodes(CONTEXT):
        if rows or group[0][1] > 0:
            rows.append(DiffRow("gap"))
        for tag, *span in group:
            rows += _rows(tag, left, right, span)
    changed = [code for code in opcodes if code[0] != "equal"]
    return Diff(
        rows=tuple(rows[:MAX_ROWS]),
        added=sum(code[4] - code[3] for code in changed),
        removed=sum(code[2] - code[1] for code in changed),
        cut=cut or len(rows) > MAX_ROWS,
    )


def _rows(tag: str, left: Sequence[str], right: Sequence[str], span: Sequence[int]) -> Iterator[DiffRow]:
    start_left, end_left, start_right, end_right = span
    pairs = zip_longest(range(start_left, end_left), range(start_right, end_right))
    for index_left, index_right in pairs:
        kind = "same" if tag == "equal" else _kind(index_left, index_right)
        yield DiffRow(
            kind,
            None if index_left is None else index_left + 1,
            "" if index_left is None else clip_line(left[index_left]),
            None if index_right is None else index_right + 1,
            "" if index_right is None else clip_line(right[index_right]),
        )


def _kind(left: int | None, right: int | None) -> str:
    return "add" if left is None else "remove" if right is None else "change"
