"""Puts a kernel of one source into another source in the place of its namesake."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from evaluator.launches import is_jit
from evaluator.syntax import parse


@dataclass(frozen=True)
class Definition:
    """A statement at the top of a module that binds names."""

    text: str
    """With its decorators and comments inside."""
    tree: str
    """Its syntax tree without places: equal for statements that differ in formatting alone."""
    first: int
    """Line of its first decorator, from 1."""
    last: int
    signature: str | None = None
    """Parameters of a jit function, defaults and annotations included."""
    needs: frozenset[str] = frozenset()
    """Names that it reads and does not bind."""


@lru_cache(maxsize=256)
def definitions(source: str) -> Mapping[str, Definition]:
    """Name -> its last definition at the top of a module; nothing for a source that does not parse."""
    try:
        body = parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    lines = source.splitlines(keepends=True)
    return {name: _definition(node, lines) for node in body for name in _bound(node)}


def exchangeable(receiver: str, donor: str) -> list[str]:
    """Jit functions of `donor` that fit into `receiver`: same name and parameters, another body, nothing missing."""
    own, other = definitions(receiver), definitions(donor)
    return [
        name
        for name, found in other.items()
        if found.signature is not None
        and name in own
        and found.signature == own[name].signature
        and found.tree != own[name].tree
        and _brought(found, own, other) is not None
    ]


def exchanged(receiver: str, donor: str, name: str) -> str:
    """`receiver` with `donor`'s function of that name, which is one of `exchangeable`, and the helpers it brings."""
    own, other = definitions(receiver), definitions(donor)
    brought = _brought(other[name], own, other)
    assert brought is not None
    helpers = sorted((other[helper] for helper in brought), key=lambda found: found.first)
    texts = dict.fromkeys(found.text for found in (*helpers, other[name]))
    lines = receiver.splitlines(keepends=True)
    return "".join([*lines[: own[name].first - 1], "\n\n".join(texts), *lines[own[name].last :]])


def _brought(
    found: Definition, own: Mapping[str, Definition], other: Mapping[str, Definition]
) -> frozenset[str] | None:
    """What a function needs that only its own module has; None where the modules mean different things by a name."""
    brought: set[str] = set()
    pending = list(found.needs)
    while pending:
        name = pending.pop()
        if name in brought or (name in own and name in other and own[name].tree == other[name].tree):
            continue
        if name in own or name not in other:
            return None
        brought.add(name)
        pending += other[name].needs
    return frozenset(brought)


def _bound(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [alias.asname or alias.name.partition(".")[0] for alias in names]
        case ast.Assign() | ast.AnnAssign():
            return [part.id for part in ast.walk(node) if isinstance(part, ast.Name) and _stores(part)]
    return []


def _stores(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _definition(node: ast.stmt, lines: list[str]) -> Definition:
    marks = node.decorator_list if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
    first, last = min([node.lineno, *(mark.lineno for mark in marks)]), node.end_lineno or node.lineno
    text = "".join(lines[first - 1 : last])
    signature = ast.unparse(node.args) if isinstance(node, ast.FunctionDef) and is_jit(node) else None
    known = frozenset(_names_bound_in(node))
    read = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and not _stores(part)}
    needs = frozenset(name for name in read - known if not hasattr(builtins, name))
    return Definition(text if text.endswith("\n") else f"{text}\n", ast.dump(node), first, last, signature, needs)


def _names_bound_in(node: ast.stmt) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.arg):
            yield part.arg
        elif isinstance(part, ast.Name) and _stores(part):
            yield part.id
