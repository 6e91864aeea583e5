"""Edits of an answer as pairs of texts: search/replace blocks and unified diffs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from policy.answers.errors import AnswerError
from policy.answers.text import Answer

MAX_HUNKS = 64
"""Hunks of one answer that are read: each is looked for in the whole file."""

_SEARCH = re.compile(
    r"\s*+(?:<{4,}\s*+(?:SEARCH|ORIGINAL|HEAD|OLD|BEFORE)\b|-{4,}\s*+SEARCH\b|<{7}\s*+$)", re.IGNORECASE
)
_DIVIDER = re.compile(r"\s*+={5,}\s*+$")
_REPLACE = re.compile(r"\s*+(?:>{4,}|\+{4,}\s*+REPLACE\b)", re.IGNORECASE)
_DIFF_LANGUAGES = ("diff", "patch", "udiff")
_HEADER = re.compile(r"(?:---|\+\+\+|diff --git|index|\*\*\*)(?:\s|$)")
_FIX = "write each edit as\n<<<<<<< SEARCH\nlines copied from the file\n=======\nnew lines\n>>>>>>> REPLACE"


@dataclass(frozen=True)
class Hunk:
    """One edit: lines to find and lines to put in their place."""

    search: tuple[str, ...]
    replace: tuple[str, ...]
    number: int
    """1 for the first of the answer."""
    lines: range
    """Lines of the answer that hold it."""
    core: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    """Search and replace without the context around the changed lines of a unified diff."""


def find_hunks(answer: Answer, notes: list[str]) -> tuple[Hunk, ...]:
    """All edits of an answer in order; empty where it holds none. Raises AnswerError for blocks that make no sense."""
    found = tuple(_blocks(answer, notes)) or tuple(_unified(answer, notes))
    if len(found) > MAX_HUNKS:
        message = f"the answer holds {len(found)} edits, more than {MAX_HUNKS}"
        raise AnswerError("no_code", message, "answer with the whole file instead")
    return found


def _blocks(answer: Answer, notes: list[str]) -> Iterator[Hunk]:
    """The `<<<<<<< SEARCH … ======= … >>>>>>> REPLACE` blocks."""
    start, divider, number = -1, -1, 0
    for index, line in enumerate(answer.lines):
        if _SEARCH.match(line):
            if start >= 0:
                raise _malformed(start, divider)
            start, divider = index, -1
        elif start >= 0 and divider < 0 and _DIVIDER.match(line):
            divider = index
        elif start >= 0 and _REPLACE.match(line):
            if divider < 0:
                raise _malformed(start, divider)
            number += 1
            yield _block(answer, start, divider, index, number, notes)
            start = -1
    if start < 0:
        return
    if answer.cut:
        raise AnswerError(
            "truncated", f"the answer was cut off inside the edit of its line {start + 1}", "answer with fewer edits"
        )
    if divider < 0:
        raise _malformed(start, divider)
    notes.append("an edit without an end")
    end = next((fence.last for fence in answer.fences if fence.closed and fence.last > divider), len(answer.lines))
    yield _block(answer, start, divider, end, number + 1, notes)


def _malformed(start: int, divider: int) -> AnswerError:
    lacks = "no ======= line" if divider < 0 else "no >>>>>>> REPLACE line"
    return AnswerError("no_code", f"the edit that starts in line {start + 1} of the answer has {lacks}", _FIX)


def _block(answer: Answer, start: int, divider: int, end: int, number: int, notes: list[str]) -> Hunk:
    search = _without_fences(answer.lines[start + 1 : divider], notes)
    replace = _without_fences(answer.lines[divider + 1 : end], notes)
    return Hunk(search, replace, number, range(start, min(end + 1, len(answer.lines))))


def _without_fences(lines: Sequence[str], notes: list[str]) -> tuple[str, ...]:
    """Without fence lines at its ends, which some put inside of the markers."""
    first, last = 0, len(lines)
    while first < last and lines[first].lstrip().startswith(("```", "~~~")):
        first += 1
    while last > first and lines[last - 1].lstrip().startswith(("```", "~~~")):
        last -= 1
    if last - first < len(lines):
        notes.append("fences inside of an edit")
    return tuple(lines[first:last])


def _unified(answer: Answer, notes: list[str]) -> Iterator[Hunk]:
    """The hunks of unified diffs, in fences or bare. Line numbers are not read."""
    fenced = [fence for fence in answer.fences if fence.language in _DIFF_LANGUAGES or _is_diff(fence.lines)]
    number = 0
    for fence in fenced:
        if answer.cut and not fence.closed:
            raise AnswerError("truncated", "the answer was cut off inside its diff", "answer with a shorter diff")
        for hunk in _hunks(fence.lines, fence.first + 1, number):
            number = hunk.number
            yield hunk
    if fenced or answer.fences or not _is_diff(answer.lines):
        return
    first = next(index for index, line in enumerate(answer.lines) if line.startswith(("@@", "--- ", "*** ")))
    notes.append("a diff without a fence")
    yield from _hunks(_bare(answer.lines[first:]), first, 0)


def _is_diff(lines: Sequence[str]) -> bool:
    heads = [line[:2] for line in lines if line.startswith(("@@", "--- ", "+++ "))]
    changed = any(line[:1] in "+-" and line[:3] not in ("+++", "---") for line in lines if line)
    return changed and ("@@" in heads or {"--", "++"} <= set(heads))


def _bare(lines: Sequence[str]) -> Sequence[str]:
    """The lines until prose begins behind an empty line."""
    for index, line in enumerate(lines):
        if line and line[0] not in " +-@\\" and not _HEADER.match(line) and not lines[index - 1].strip():
            return lines[:index]
    return lines


def _hunks(lines: Sequence[str], offset: int, number: int) -> Iterator[Hunk]:
    start = since = 0
    for index in range(len(lines) + 1):
        if index < len(lines) and not lines[index].startswith("@@"):
            continue
        body = [line for line in lines[start:index] if not _HEADER.match(line) and not line.startswith("\\")]
        while body and not body[-1].strip():
            body.pop()
        if any(line[:1] in ("+", "-") for line in body):
            number += 1
            yield _hunk(body, number, range(offset + since, offset + index))
            since = index
        start = index + 1


def _hunk(body: Sequence[str], number: int, lines: range) -> Hunk:
    prefix = 1 if _has_prefix(body) else 0
    marked = [
        (line[:1], line[1:]) if line[:1] in ("+", "-") else (" ", line[prefix:] if line[:1] == " " else line)
        for line in body
    ]
    changed = [index for index, (mark, _) in enumerate(marked) if mark != " "]
    inner = marked[changed[0] : changed[-1] + 1]
    core = _sides(inner) if any(mark == "-" for mark, _ in inner) and len(inner) < len(marked) else None
    return Hunk(*_sides(marked), number, lines, core)


def _has_prefix(body: Sequence[str]) -> bool:
    """Whether context lines begin with the space that diffs want: then most are indented by odd numbers."""
    context = [line for line in body if line.strip() and line[0] not in "+-"]
    odd = sum((len(line) - len(line.lstrip(" "))) % 2 for line in context)
    return not context or 2 * odd >= len(context)


def _sides(marked: Sequence[tuple[str, str]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    search = tuple(text for mark, text in marked if mark != "+")
    replace = tuple(text for mark, text in marked if mark != "-")
    return search, replace
