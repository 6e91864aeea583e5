"""Code quality of a candidate, read from its syntax tree alone: the Q of the `weighted` reward.

Four scores in [0, 1], averaged: findings, complexity, docstrings, length. No external linter takes part, because a
reward must not depend on which tools a machine has installed.
"""

from __future__ import annotations

import ast
from functools import lru_cache

from evaluator.syntax import parse
from evaluator.types import Frozen

MAX_LINE = 120
BRANCHES = (
    ast.If,
    ast.For,
    ast.While,
    ast.IfExp,
    ast.ExceptHandler,
    ast.comprehension,
    ast.match_case,
    ast.Assert,
)


class Quality(Frozen):
    """The four scores, each in [0, 1]; 1 is best."""

    findings: float
    complexity: float
    docstring: float
    length: float

    @property
    def total(self) -> float:
        """Their mean, in [0, 1]."""
        return (self.findings + self.complexity + self.docstring + self.length) / 4


@lru_cache(maxsize=1024)
def quality_of(source: str) -> Quality:
    """Score a source; all zeros when it does not parse."""
    try:
        tree = parse(source)
        worst = max((_cyclomatic(function) for function in _functions(tree)), default=1)
        found = len(_unused_imports(tree)) + _bare_excepts(tree) + _long_lines(source)
        documented = _documented_share(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Quality(findings=0.0, complexity=0.0, docstring=0.0, length=0.0)
    lines = sum(bool(line.strip()) for line in source.splitlines())
    return Quality(
        findings=1 / (1 + found),
        complexity=_falling(worst, best=10, worst=30),
        docstring=documented,
        length=_falling(lines, best=200, worst=1000),
    )


def _falling(value: float, *, best: float, worst: float) -> float:
    """1 up to `best`, 0 from `worst` on, linear between."""
    return min(1.0, max(0.0, (worst - value) / (worst - best)))


def _functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _cyclomatic(function: ast.AST) -> int:
    """Independent paths through a function: 1 + branch points (McCabe 1976)."""
    count = 1
    for node in ast.walk(function):
        if isinstance(node, BRANCHES):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
    return count


def _unused_imports(tree: ast.Module) -> set[str]:
    imported = {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module != "__future__")
        for alias in node.names
    }
    return imported - {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _bare_excepts(tree: ast.Module) -> int:
    return sum(isinstance(node, ast.ExceptHandler) and node.type is None for node in ast.walk(tree))


def _long_lines(source: str) -> int:
    return sum(len(line) > MAX_LINE for line in source.splitlines())


def _documented_share(tree: ast.Module) -> float:
    """Share of the module, its classes and its public functions that have a docstring."""
    public = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef)
        or (isinstance(node, ast.FunctionDef) and not node.name.startswith("_"))
    ]
    return sum(ast.get_docstring(node, clean=False) is not None for node in public) / len(public)
