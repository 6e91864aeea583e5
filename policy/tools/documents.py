"""The documents that a model may look up: a folder of the user's, and Triton's language reference."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

from evaluator.types import Frozen
from policy.tools.kernel_library import texts_below
from policy.tools.ranking import Bm25, words

SUFFIXES = (".md", ".txt", ".rst")
PASSAGE_CHARS = 2500
"""Longer sections are split between paragraphs."""

_HEADING = re.compile(r"#{1,6}\s+\S")
_UNDERLINE = re.compile(r"([=\-~^\"'`#*+.:_])\1{2,}\s*$")
_FENCE = re.compile(r"\s{0,3}(```|~~~)")


class Passage(Frozen):
    """One section of a document."""

    title: str
    """Where it stands: file and heading, or the name of a function."""
    text: str


class DocumentLibrary:
    """Passages ranked by BM25; titles count as text. Thread-safe.

    `reference` gives Triton's language reference (`policy.tools.triton_reference.language_reference`); it is asked at
    the first search, since it may take seconds to build. The folder is read at once, so that a wrong one is known
    before a campaign starts: raises UsageError.
    """

    def __init__(self, folder: Path | None = None, reference: Callable[[], Iterable[Passage]] = tuple) -> None:
        self._passages = [] if folder is None else folder_passages(folder)
        self._reference: Callable[[], Iterable[Passage]] | None = reference
        self._index = Bm25([])
        self._lock = threading.Lock()

    def search(self, query: str, count: int) -> list[Passage]:
        """At most `count` passages that share a word with `query`, best first."""
        with self._lock:
            if self._reference is not None:
                self._passages += self._reference()
                self._index = Bm25([[*words(passage.title), *words(passage.text)] for passage in self._passages])
                self._reference = None
        return [self._passages[number] for number in self._index.best(words(query), count)]


def folder_passages(folder: Path) -> list[Passage]:
    """The sections of all documents below `folder`, in the order of their paths. Raises UsageError."""
    return [
        Passage(title=f"{path.relative_to(folder)}: {heading}" if heading else str(path.relative_to(folder)), text=part)
        for path, text in texts_below(folder, SUFFIXES)
        for heading, section in sections(text, path.suffix.lower())
        for part in split_at_paragraphs(section)
    ]


def sections(text: str, suffix: str) -> list[tuple[str, str]]:
    """(heading, text with its heading) of every section; one section without a heading for plain text."""
    lines = text.splitlines()
    starts = {".md": _markdown_headings, ".rst": _rst_headings}.get(suffix, _no_headings)(lines)
    bounds = [(0, ""), *starts, (len(lines), "")]
    found = []
    for (start, heading), (end, _) in pairwise(bounds):
        section = "\n".join(lines[start:end]).strip()
        if section:
            found.append((heading, section))
    return found


def _no_headings(lines: list[str]) -> list[tuple[int, str]]:
    return []


def _markdown_headings(lines: list[str]) -> list[tuple[int, str]]:
    found, fence = [], ""
    for number, line in enumerate(lines):
        mark = _FENCE.match(line)
        if mark and fence in ("", mark.group(1)):
            fence = "" if fence else mark.group(1)
        elif not fence and _HEADING.match(line):
            found.append((number, line.strip("# \t")))
    return found


def _rst_headings(lines: list[str]) -> list[tuple[int, str]]:
    found = []
    for number, (title, line) in enumerate(pairwise(lines)):
        underlined = _UNDERLINE.match(line) and len(line.rstrip()) >= len(title.rstrip())
        if underlined and title.strip() and not _UNDERLINE.match(title):
            found.append((number, title.strip()))
    return found


def split_at_paragraphs(text: str) -> list[str]:
    """`text` in parts of at most about `PASSAGE_CHARS` characters; a longer paragraph stays whole."""
    parts: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        if parts and len(parts[-1]) + len(paragraph) <= PASSAGE_CHARS:
            parts[-1] += f"\n\n{paragraph}"
        else:
            parts.append(paragraph)
    return parts
