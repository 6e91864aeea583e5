"""`ast.parse` for several threads: in CPython 3.11 two at once can raise SystemError (a shared recursion counter).

Our own threads take turns. Others do not know of that: formatting a traceback parses too, whoever logs it. So a parse
that was disturbed is tried again.
"""

from __future__ import annotations

import ast
import threading
from collections import deque
from collections.abc import Callable, Iterator
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


def statements(node: ast.AST, *, own: bool = False) -> Iterator[ast.AST]:
    """A node and the statements below it, level by level as `ast.walk` has them, without looking into expressions.

    `own` leaves out what is inside of functions and classes below the node. A tenth of what `ast.walk` visits.
    """
    pending = deque([node])
    while pending:
        found = pending.popleft()
        yield found
        if not own or found is node or not isinstance(found, ast.FunctionDef | ast.ClassDef):
            for name in _BLOCKS:
                pending.extend(getattr(found, name, ()))


_BLOCKS = ("body", "cases", "handlers", "orelse", "finalbody")
"""Where statements hold statements, in the order of their fields."""


def _undisturbed(parse_once: Callable[[], NodeT]) -> NodeT:
    for _ in range(TRIES):
        try:
            with _PARSING:
                return parse_once()
        except SystemError:
            continue
    with _PARSING:
        return parse_once()
