"""Hashes that ignore what does not matter: comments and formatting, or the values of tunables as well."""

from __future__ import annotations

import ast
import hashlib
from functools import lru_cache
from typing import TypeGuard

from evaluator.launches import LAUNCH_OPTIONS, find_launches, is_jit
from evaluator.syntax import parse, statements
from evaluator.tunables import tunable_literals


@lru_cache(maxsize=1024)
def ast_hash(source: str) -> str:
    """SHA-256 of the normalised syntax tree: comments, docstrings, quotes and whitespace do not count.

    A source that does not parse is hashed as text, so that it can still be told from others.
    """
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
    return _digest(tree)


@lru_cache(maxsize=1024)
def structure_hash(source: str) -> str:
    """Like `ast_hash`, with the values of all tunables masked: equal for two configs of one structure.

    A launch option counts the same whether it is written out or left to Triton's default.
    """
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast_hash(source)
    places = tunable_literals(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and (node.lineno, node.col_offset) in places:
            node.value = "tunable"
    for launch in find_launches(tree):
        launch.call.keywords = [word for word in launch.call.keywords if not _masked_option(word)]
    return _digest(tree)


@lru_cache(maxsize=1024)
def host_hash(source: str, every_number: bool) -> str:
    """SHA-256 of a module without what the compiler makes machine code of: jit functions keep name and decorators.

    Values of tunables are masked, and with `every_number` all numbers outside of decorators. Raises SyntaxError.
    """
    tree = parse(source)
    places = tunable_literals(source)
    for launch in find_launches(tree):
        launch.call.keywords = [
            word for word in launch.call.keywords if word.arg not in LAUNCH_OPTIONS or not _is_number(word.value)
        ]
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef) and is_jit(node):
            node.args, node.body = _NO_ARGUMENTS, []
        elif _is_number(node) and (every_number or (node.lineno, node.col_offset) in places):
            node.value = "number"
        else:
            pending.extend(ast.iter_child_nodes(node))
    return _digest(tree)


_NO_ARGUMENTS = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])


def _is_number(node: ast.AST) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float, complex)


def _masked_option(word: ast.keyword) -> bool:
    return word.arg in LAUNCH_OPTIONS and isinstance(word.value, ast.Constant) and word.value.value == "tunable"


def _digest(tree: ast.Module) -> str:
    for node in statements(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node, clean=False):
            node.body = node.body[1:]
    return hashlib.sha256(ast.dump(tree).encode("utf-8", "surrogatepass")).hexdigest()
