"""JSON as models write it: comments, single quotes, bare words, commas too many, brackets too few.

A reader of one pass, linear in the text. Strict JSON goes through the standard library.
"""

from __future__ import annotations

import json
import re
from typing import Any

MAX_DEPTH = 40
"""Nesting that no answer needs; deeper text is refused."""

_SPACE = re.compile(r"(?:\s++|//[^\n]*+|#[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)*+")
_NUMBER = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?(?![\w.])")
_WORD = re.compile(r"[A-Za-z_][\w.-]*+")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_TEXT = {'"': re.compile(r'((?:[^"\\\n]|\\.)*+)"', re.DOTALL), "'": re.compile(r"((?:[^'\\\n]|\\.)*+)'", re.DOTALL)}
_QUOTES = str.maketrans("\u201c\u201d\u2018\u2019", "\"\"''")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_DIGITS = 400
"""Digits of a number beyond which nothing is meant seriously (and Python refuses to convert)."""


class LooseError(ValueError):
    """The text is no JSON even with good will; `place` is the offset, `open` says that it merely ends too early."""

    def __init__(self, message: str, place: int, *, ended: bool = False) -> None:
        super().__init__(message)
        self.place = place
        self.ended = ended


def read_json(text: str, start: int, notes: list[str]) -> tuple[Any, int, bool]:
    """The value that starts at `start`, the offset behind it, and whether its brackets were closed.

    Raises LooseError. What was mended is added to `notes`.
    """
    try:
        value, end = json.JSONDecoder().raw_decode(text, start)
        return value, end, True
    except (ValueError, RecursionError):
        reader = _Reader(text.translate(_QUOTES), start)
        value = reader.value(0)
        notes += dict.fromkeys(reader.notes)
        return value, reader.place, reader.closed


class _Reader:
    def __init__(self, text: str, place: int) -> None:
        self.text = text
        self.place = place
        self.closed = True
        self.notes: list[str] = []

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise LooseError(f"brackets are nested more than {MAX_DEPTH} deep", self.place)
        char = self._peek()
        if char == "{":
            return self._object(depth)
        if char == "[":
            return self._array(depth)
        if char in _TEXT:
            return self._string(char)
        return self._bare()

    def _object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.place += 1
        while self._more("}"):
            key = self.value(depth + 1)
            if not isinstance(key, str):
                raise LooseError("a key is no text", self.place)
            if self._peek() not in (":", "="):
                raise LooseError(f'expected ":" behind the key {key[:40]!r}', self.place, ended=not self._peek())
            self.place += 1
            found[key] = self.value(depth + 1)
            self._comma("}")
        return found

    def _array(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self.place += 1
        while self._more("]"):
            found.append(self.value(depth + 1))
            self._comma("]")
        return found

    def _more(self, bracket: str) -> bool:
        """Whether another member follows; steps over the closing bracket if not."""
        char = self._peek()
        if char == bracket:
            self.place += 1
            return False
        if char in ("", "}", "]", "`"):
            self.closed = False
            self.notes.append("brackets that were not closed")
            return False
        return True

    def _comma(self, bracket: str) -> None:
        char = self._peek()
        if char == ",":
            self.place += 1
            if self._peek() == bracket:
                self.notes.append("a comma too many")
        elif char not in ("", "}", "]", "`"):
            if char not in ("{", '"', "'"):
                raise LooseError(f'expected "," or "{bracket}"', self.place)
            self.notes.append("a missing comma")

    def _string(self, quote: str) -> str:
        match = _TEXT[quote].match(self.text, self.place + 1)
        if match is None:
            raise LooseError("a text has no closing quote", self.place, ended="\n" not in self.text[self.place :])
        if quote == "'":
            self.notes.append("single quotes in JSON")
        self.place = match.end()
        text = _ESCAPE.sub(_unescaped, match.group(1))
        # JSON writes what is beyond 16 bits as two halves.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")

    def _bare(self) -> Any:
        if match := _NUMBER.match(self.text, self.place):
            self.place = match.end()
            return _number(match.group(), match.start())
        if match := _WORD.match(self.text, self.place):
            self.place = match.end()
            word = match.group()
            if word not in ("true", "false", "null"):
                self.notes.append("words without quotes in JSON")
            return _WORDS.get(word, word)
        raise LooseError("expected a value", self.place, ended=self.place >= len(self.text))

    def _peek(self) -> str:
        """The next character that counts; "" at the end."""
        match = _SPACE.match(self.text, self.place)
        assert match is not None
        if match.group().strip():
            self.notes.append("comments in JSON")
        self.place = match.end()
        return self.text[self.place : self.place + 1]


def _number(text: str, place: int) -> int | float:
    if len(text) > _DIGITS:
        raise LooseError("a number is too long", place)
    try:
        return int(text)
    except ValueError:
        return float(text)


def _unescaped(match: re.Match[str]) -> str:
    word = match.group(1)
    return chr(int(word[1:], 16)) if len(word) == 5 else _ESCAPES.get(word, word)
