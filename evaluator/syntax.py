"""`ast.parse` for several threads: in CPython 3.11 two at once can raise SystemError (a shared recursion counter)."""

from __future__ import annotations

import ast
import threading

_PARSING = threading.Lock()


def parse(source: str) -> ast.Module:
    """The syntax tree of a module. Raises what `ast.parse` raises."""
    with _PARSING:
        return ast.parse(source)


def parse_expression(source: str) -> ast.Expression:
    """The syntax tree of one expression. Raises what `ast.parse` raises."""
    with _PARSING:
        return ast.parse(source, mode="eval")
