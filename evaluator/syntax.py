"""`ast.parse` for several threads: in CPython 3.11 two at once can raise SystemError (a shared recursion counter).

Our own threads take turns. Others do not know of that: formatting a traceback parses too, whoever logs it. So a parse
that was disturbed is tried again.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable
from typing import TypeVar

NodeT = TypeVar("NodeT")

TRIES = 100
_PARSING = threading.Lock()


def parse(source: str) -> ast.Module:
    """The syntax tree of a module. Raises what `ast.parse` raises."""
    return _undisturbed(lambda: ast.parse(source))


def parse_expression(source: str) -> ast.Expression:
    """The syntax tree of one expression. Raises what `ast.parse` raises."""
    return _undisturbed(lambda: ast.parse(source, mode="eval"))


def _undisturbed(parse_once: Callable[[], NodeT]) -> NodeT:
    for _ in range(TRIES):
        try:
            with _PARSING:
                return parse_once()
        except SystemError:
            continue
    with _PARSING:
        return parse_once()
