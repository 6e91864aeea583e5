"""Hashes that ignore what does not matter: comments and formatting, or the values of tunables as well."""

from __future__ import annotations

import ast
import hashlib
from functools import lru_cache

from evaluator.launches import LAUNCH_OPTIONS, find_launches
from evaluator.syntax import parse
from evaluator.tunables import tunable_literals


@lru_cache(maxsize=4096)
def ast_hash(source: str) -> str:
    """SHA-256 of the normalised syntax tree: comments, docstrings, quotes and whitespace do not count.

    A source that does not parse is hashed as text, so that it can still be told from others.
    """
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
    return _digest(tree)


@lru_cache(maxsize=4096)
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


def _masked_option(word: ast.keyword) -> bool:
    return word.arg in LAUNCH_OPTIONS and isinstance(word.value, ast.Constant) and word.value.value == "tunable"


def _digest(tree: ast.Module) -> str:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node, clean=False):
            node.body = node.body[1:]
    return hashlib.sha256(ast.dump(tree).encode("utf-8", "surrogatepass")).hexdigest()
