"""An answer as lines and fences: what comes before any thought about what its code means.

Every pattern here and in its neighbours takes time linear in the answer, whatever the answer holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from textwrap import dedent

EXPLANATION_LINES = 6
EXPLANATION_CHARACTERS = 600

_FENCE = re.compile(r"[ \t>]*+(`{3,}+|~{3,}+)[ \t]*+([^`]*+)$")
_THINK = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_ENTITY = re.compile(r"&(lt|gt|amp|quot|#39|#x27);")
_ENTITIES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "#39": "'", "#x27": "'"}
# What chat templates leave behind, and wrappers that stand alone on a line.
_TOKEN = re.compile(r"<\|[A-Za-z_]{1,30}\|>|</s>$")
_TAG = re.compile(r"\s*+</?(?:answer|code|response|output|final|tool_call|python|solution)>\s*+$", re.IGNORECASE)


@dataclass(frozen=True)
class Fence:
    """One fenced block."""

    language: str
    """The first word behind the fence, in small letters; may be empty."""
    lines: tuple[str, ...]
    first: int
    """Index of its opening line in the answer's lines."""
    last: int
    """Index of its closing line; of the last line of the answer when it is not closed."""
    closed: bool

    @property
    def text(self) -> str:
        """Its content, ending in a newline when there is any."""
        return "".join(f"{line}\n" for line in self.lines)


@dataclass(frozen=True)
class Answer:
    """A cleaned answer."""

    lines: tuple[str, ...]
    fences: tuple[Fence, ...]
    cut: bool
    """Whether the server stopped it for its length."""

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(self.lines)

    @property
    def unclosed(self) -> bool:
        """Whether its last fence is open."""
        return bool(self.fences) and not self.fences[-1].closed


def clean(answer: str, parent: str, cut: bool, notes: list[str]) -> Answer:
    """The answer without thoughts, byte-order marks, foreign line ends, and HTML escapes that the parent has not."""
    text = answer.lstrip("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        notes.append("foreign line ends")
    if "\u00a0" in text and "\u00a0" not in parent:
        text = text.replace("\u00a0", " ")
        notes.append("no-break spaces")
    if _ENTITY.search(text) and not _ENTITY.search(parent):
        text = _ENTITY.sub(lambda found: _ENTITIES[found.group(1)], text)
        notes.append("HTML escapes")
    text = without_thoughts(text, cut, notes)
    lines = tuple(_TOKEN.sub("", line) for line in text.split("\n") if "<" not in line or not _TAG.match(line))
    return Answer(lines, fences(lines, notes), cut)


def without_thoughts(text: str, cut: bool, notes: list[str]) -> str:
    """`text` without `<think>…</think>`; a lone closing tag ends thoughts that began in the prompt.

    Thoughts that never end are all there is when the answer was cut off; otherwise the tag alone is dropped.
    """
    kept: list[str] = []
    place, opened = 0, -1
    for tag in _THINK.finditer(text):
        if not tag.group(1):
            if opened < 0:
                kept.append(text[place : tag.start()])
                opened = place = tag.end()
        elif opened >= 0:
            place, opened = tag.end(), -1
        elif not kept and not _in_comment(text, tag.start()):
            place = tag.end()
    if opened >= 0 and cut:
        return "".join(kept)
    if opened >= 0:
        notes.append("thoughts without an end")
    return "".join([*kept, text[place:]])


def _in_comment(text: str, place: int) -> bool:
    # A bounded look back: an answer of nothing but tags must not cost its length for each.
    return "#" in text[max(0, place - 200) : place].rpartition("\n")[2]


def fences(lines: tuple[str, ...], notes: list[str]) -> tuple[Fence, ...]:
    """Blocks between ``` or ~~~ lines, without the indentation of their fence; the last one may be open.

    An opening line with a language inside of an open block ends that block: its closing line was forgotten.
    """
    found: list[Fence] = []
    start, mark, language = -1, "", ""
    for index, line in enumerate(lines):
        if "```" not in line and "~~~" not in line:
            continue
        match = _FENCE.match(line)
        if start >= 0 and match and match.group(1)[0] == mark[0] and len(match.group(1)) >= len(mark):
            found.append(_fence(lines, start, index, language))
            start = -1
            if not match.group(2).strip():
                continue
            notes.append("a fence without an end")
        if start < 0 and match and _language(match.group(2)) not in ("markdown", "md"):  # those wrap whole answers
            start, mark, language = index, match.group(1), _language(match.group(2))
        elif start >= 0 and not match and line.endswith(mark):
            notes.append("a fence closed behind code")
            found.append(_fence(lines, start, index, language, line[: -len(mark)]))
            start = -1
    if start >= 0 and any(line.strip() for line in lines[start + 1 :]):
        found.append(_fence(lines, start, len(lines), language))
    return tuple(found)


def _language(info: str) -> str:
    words = info.strip().strip("{}.").replace(",", " ").replace(":", " ").split()
    return words[0].lower() if words else ""


def _fence(lines: tuple[str, ...], start: int, end: int, language: str, ending: str | None = None) -> Fence:
    """The block of the fence in line `start`, closed in line `end` if there is one, behind the code `ending`."""
    indent = len(lines[start]) - len(lines[start].lstrip(" \t>"))
    content = [*lines[start + 1 : end], *([] if ending is None else [ending])]
    if indent:
        lead = lines[start][:indent]
        content = [
            line[indent:] if line.startswith(lead) or not line[:indent].strip(" \t>") else line for line in content
        ]
    if next((line for line in content if line.strip()), "")[:1] in (" ", "\t"):
        content = dedent("\n".join(content)).split("\n")
    return Fence(language, tuple(content), start, min(end, len(lines) - 1), end < len(lines))


def prose(answer: Answer, used: Iterable[range]) -> str:
    """The first lines of what is said around fences and the `used` lines; bounded."""
    taken: set[int] = set()
    for lines in (*used, *(range(fence.first, fence.last + 1) for fence in answer.fences)):
        taken.update(lines)
    said: list[str] = []
    for index, line in enumerate(answer.lines):
        if index not in taken and line.strip() and not _FENCE.match(line):
            said.append(line.strip()[:EXPLANATION_CHARACTERS])
            if len(said) == EXPLANATION_LINES:
                break
    return "\n".join(said)[:EXPLANATION_CHARACTERS]
