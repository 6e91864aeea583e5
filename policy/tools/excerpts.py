"""The part of a source that a query is about, cut at whole functions."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from evaluator.syntax import parse
from policy.tools.kernel_library import source_words
from policy.tools.ranking import Bm25, words


@dataclass(frozen=True)
class _Piece:
    """Consecutive lines: one function or class with its decorators, or what stands between two of them."""

    text: str
    name: str = ""
    """Of the function or class; empty for other lines."""

    @property
    def left_out(self) -> str:
        """The comment that stands for the piece."""
        what = f"{self.name} " if self.name else ""
        return f"# … {what}left out ({len(self.text.strip().splitlines())} lines)\n"


def excerpt(source: str, query: str, room: int) -> str:
    """`source` in at most about `room` characters: functions that match `query` best, whole and in their order.

    A comment stands for every function that is left out. A source that does not parse, or of which nothing fits, is
    named by its length alone.
    """
    if len(source) <= room:
        return source
    try:
        pieces = _pieces(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _only_length(source)
    chosen = _chosen(pieces, query, room)
    if not chosen:
        return _only_length(source)
    return "".join(piece.text if number in chosen else piece.left_out for number, piece in enumerate(pieces))


def _chosen(pieces: list[_Piece], query: str, room: int) -> set[int]:
    index = Bm25([source_words(piece.text) for piece in pieces])
    scores = index.scores(words(query))
    left = room - sum(len(piece.left_out) for piece in pieces)
    chosen = set()
    for number in sorted(range(len(pieces)), key=lambda number: (-scores[number], number)):
        cost = len(pieces[number].text) - len(pieces[number].left_out)
        if cost <= left:
            chosen.add(number)
            left -= cost
    return chosen


def _pieces(source: str) -> list[_Piece]:
    # splitlines would also split at form feeds and other characters that Python's parser takes for space.
    lines = [f"{line}\n" for line in source.split("\n")]
    pieces: list[_Piece] = []
    done = 0
    for node in parse(source).body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
        end = node.end_lineno or node.lineno
        between = "".join(lines[done:start])
        if between.strip():
            pieces.append(_Piece(between))
            between = ""
        pieces.append(_Piece(between + "".join(lines[start:end]), node.name))
        done = end
    rest = "".join(lines[done:])
    return [*pieces, _Piece(rest)] if rest.strip() else pieces


def _only_length(source: str) -> str:
    return f"# … left out ({len(source.splitlines())} lines)\n"
