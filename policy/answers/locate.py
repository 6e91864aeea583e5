"""Finds the place of an edit by its lines, more leniently step by step, and puts the new lines there."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from policy.answers.errors import AnswerError
from policy.answers.hunks import Hunk

PLACES_SHOWN = 6
QUOTED = 160
"""Characters of a line that an error shows or compares."""
COMPARED = 1000
"""Lines of a file among which the nearest is looked for."""
_COPY = "copy the lines exactly as they stand in the file, with some unchanged lines around them"


@dataclass(frozen=True)
class Leniency:
    """What of a line must agree."""

    key: Callable[[str], str]
    note: str
    skip_blank: bool
    """Empty lines do not count, and new lines take the file's indentation."""


LENIENCIES = (
    Leniency(lambda line: line, "", skip_blank=False),
    Leniency(str.rstrip, "spaces at the ends of lines", skip_blank=False),
    Leniency(str.strip, "another indentation", skip_blank=True),
    Leniency(lambda line: re.sub(r"\s++", "", line), "other spaces inside of lines", skip_blank=True),
)


def apply_hunks(source: str, hunks: Sequence[Hunk], notes: list[str]) -> str:
    """`source` after all edits in order. Raises AnswerError for an edit whose place is not found or not clear."""
    ends = source.endswith("\n")
    lines = source.split("\n")[: -1 if ends else None]
    for hunk in hunks:
        lines = _apply(lines, hunk, notes)
    return "\n".join(lines) + ("\n" if ends or not lines else "")


def _apply(lines: list[str], hunk: Hunk, notes: list[str]) -> list[str]:
    if not any(line.strip() for line in hunk.search):
        raise AnswerError("search_not_found", f"edit {hunk.number} names no line of the file to change", _COPY)
    changed = _replaced(lines, hunk.search, hunk.replace, hunk, notes)
    if changed is None and hunk.core is not None and any(line.strip() for line in hunk.core[0]):
        changed = _replaced(lines, *hunk.core, hunk, notes)
        notes += ["context that the file does not have"] if changed is not None else []
    if changed is None:
        changed = _inside_a_line(lines, hunk, notes)
    if changed is None:
        raise _not_found(lines, hunk)
    return changed


def _replaced(
    lines: list[str], search: Sequence[str], replace: Sequence[str], hunk: Hunk, notes: list[str]
) -> list[str] | None:
    for leniency in LENIENCIES:
        places = _places(lines, search, leniency)
        if len(places) > 1:
            raise _ambiguous(places, hunk)
        if places:
            notes += [leniency.note] if leniency.note else []
            first, last = places[0].start, places[0].stop
            fresh = _reindented(lines[first:last], search, replace) if leniency.skip_blank else list(replace)
            return [*lines[:first], *fresh, *lines[last:]]
    return None


def _places(lines: Sequence[str], search: Sequence[str], leniency: Leniency) -> list[range]:
    """Where `search` stands, at most PLACES_SHOWN + 1 places; linear in the file for each."""
    kept = [(index, leniency.key(line)) for index, line in enumerate(lines)]
    wanted = [leniency.key(line) for line in search]
    if leniency.skip_blank:
        kept = [(index, key) for index, key in kept if key.strip()]
        wanted = [key for key in wanted if key.strip()]
    if not wanted or len(wanted) > len(kept):
        return []
    text = "\n" + "".join(f"{key}\n" for _, key in kept)
    needle = "\n" + "".join(f"{key}\n" for key in wanted)
    found: list[range] = []
    place = text.find(needle)
    while place >= 0 and len(found) <= PLACES_SHOWN:
        first = text.count("\n", 0, place)
        found.append(range(kept[first][0], kept[first + len(wanted) - 1][0] + 1))
        place = text.find(needle, place + 1)
    return found


def _reindented(old: Sequence[str], search: Sequence[str], replace: Sequence[str]) -> list[str]:
    """`replace` with the indentation that `old` has where `search` has its own."""
    pairs = list(zip((line for line in search if line.strip()), (line for line in old if line.strip()), strict=True))
    widths: dict[int, int] = {}
    same: dict[str, str] = {}
    for mine, theirs in pairs:
        widths.setdefault(_indent(mine), _indent(theirs))
        same.setdefault(mine, theirs)
    first, last = 0, len(replace)
    while first < last and not replace[first].strip():
        first += 1
    while last > first and not replace[last - 1].strip():
        last -= 1
    return [same.get(line) or _moved(line, widths) for line in replace[first:last]]


def _moved(line: str, widths: dict[int, int]) -> str:
    if not line.strip():
        return ""
    indent = _indent(line)
    near = max((width for width in widths if width <= indent), default=min(widths))
    return " " * max(0, widths[near] + indent - near) + line.lstrip()


def _indent(line: str) -> int:
    lead = line[: len(line) - len(line.lstrip())].expandtabs(4)
    return len(lead)


def _inside_a_line(lines: list[str], hunk: Hunk, notes: list[str]) -> list[str] | None:
    """A part of one line for a part of one line."""
    search = [line for line in hunk.search if line.strip()]
    replace = [line for line in hunk.replace if line.strip()]
    if len(search) != 1 or len(replace) != 1:
        return None
    part = search[0].strip()
    places = [range(index, index + 1) for index, line in enumerate(lines) if part in line]
    if len(places) > 1 or (places and lines[places[0].start].count(part) > 1):
        raise _ambiguous(places, hunk)
    if not places:
        return None
    notes.append("a part of a line")
    line = places[0].start
    return [*lines[:line], lines[line].replace(part, replace[0].strip()), *lines[line + 1 :]]


def _ambiguous(places: Sequence[range], hunk: Hunk) -> AnswerError:
    shown = ", ".join(str(place.start + 1) for place in places[:PLACES_SHOWN])
    more = " and more" if len(places) > PLACES_SHOWN else ""
    where = f"lines {shown}{more}" if len(places) > 1 else f"several times in line {shown}"
    quoted = next(line for line in hunk.search if line.strip()).strip()[:QUOTED]
    message = f"the search text of edit {hunk.number} (`{quoted}` …) fits in several places: {where}"
    return AnswerError("ambiguous_search", message, "add lines above or below until it fits in one place only")


def _not_found(lines: Sequence[str], hunk: Hunk) -> AnswerError:
    known = {re.sub(r"\s++", "", line) for line in lines}
    wanted = [line.strip() for line in hunk.search if line.strip()]
    missing = next((line for line in wanted if re.sub(r"\s++", "", line) not in known), None)
    if missing is None:
        message = f"the lines of edit {hunk.number} are in the file, but not one below the other"
        return AnswerError("search_not_found", f"{message}: `{wanted[0][:QUOTED]}` …", _COPY)
    message = f"edit {hunk.number} searches a line that is not in the file: `{missing[:QUOTED]}`"
    numbered = {line.strip()[:QUOTED]: index for index, line in enumerate(lines[:COMPARED], start=1) if line.strip()}
    near = difflib.get_close_matches(missing[:QUOTED], numbered, n=1)
    if near:
        message += f"; the nearest is line {numbered[near[0]]}: `{near[0]}`"
    return AnswerError("search_not_found", message, _COPY)
