"""Reading Triton sources as concrete syntax trees: parse, walk, names, functions, constants.

Nodes are found in the order of the source. Modules are shared through a cache, which is safe since libcst
nodes are never changed in place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import TypeVar

import libcst as cst

from policy.rewrites.base import RewriteError

NodeT = TypeVar("NodeT", bound=cst.CSTNode)


Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement


@lru_cache(maxsize=256)
def parse(source: str) -> cst.Module:
    """The module of `source`; raises RewriteError with the line when it is not Python."""
    try:
        return cst.parse_module(source)
    except cst.ParserSyntaxError as error:
        raise RewriteError(f"line {error.raw_line}: not valid Python: {error.message}") from None
    except (ValueError, RecursionError) as error:
        # Lone surrogates and null bytes, or nesting beyond what the parser takes.
        raise RewriteError(f"not valid Python: {error}") from None


def expression(text: str) -> cst.BaseExpression:
    """The expression node of `text`; in brackets when it spans lines that its own brackets do not hold together."""
    try:
        return cst.parse_expression(text)
    except cst.ParserSyntaxError:
        if "\n" not in text:
            raise
    return cst.parse_expression(f"({text})")


def statement(text: str) -> Statement:
    """The statement node of `text` (one statement, simple or compound, at column 0)."""
    return cst.parse_statement(text)


def statements(text: str) -> list[Statement]:
    """The statement nodes of `text`, comments included."""
    return list(cst.parse_module(text).body)


def code(node: cst.CSTNode) -> str:
    """The text of one node, e.g. to print or to compare two expressions."""
    return _EMPTY_MODULE.code_for_node(node)


_EMPTY_MODULE = cst.Module(body=[])


def same(left: cst.CSTNode, right: cst.CSTNode) -> bool:
    """Whether two nodes are the same code, comments and spaces included."""
    return left is right or left.deep_equals(right)


# libcst's own `children` rebuilds the node to list them, which would make every search many times slower.
@cache
def _child_fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    skipped = ("whitespace", "leading_lines", "lines_after", "header", "footer", "indent", "newline")
    names = [field.name for field in dataclasses.fields(kind)]
    return tuple(name for name in names if not name.startswith(skipped) and name not in ("lpar", "rpar"))


def children(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The nodes just below `node` in the order of its fields; whitespace, comments and brackets left out."""
    for name in _child_fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (item for item in value if isinstance(item, cst.CSTNode))


@lru_cache(maxsize=4096)
def walk(node: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    """`node` and everything below it, parents before children, in a stable order (that of the source)."""
    found: list[cst.CSTNode] = []
    _collect(node, found)
    return tuple(found)


def _collect(node: cst.CSTNode, found: list[cst.CSTNode]) -> None:
    found.append(node)
    for child in children(node):
        _collect(child, found)


def find(node: cst.CSTNode, kind: type[NodeT]) -> list[NodeT]:
    """Every node of one type at or below `node`, in the order of the source."""
    return [inner for inner in walk(node) if isinstance(inner, kind)]


@lru_cache(maxsize=256)
def parent_map(root: cst.CSTNode) -> Mapping[int, cst.CSTNode]:
    """`id(node)` to parent for everything below `root`. Valid while `root` is alive."""
    return {id(child): node for node in walk(root) for child in children(node)}


def enclosing(
    node: cst.CSTNode, kind: type[NodeT] | tuple[type[NodeT], ...], parents: Mapping[int, cst.CSTNode]
) -> NodeT | None:
    """The nearest proper ancestor of one of the types."""
    current = parents.get(id(node))
    while current is not None:
        if isinstance(current, kind):
            return current
        current = parents.get(id(current))
    return None


def statement_of(node: cst.CSTNode, parents: Mapping[int, cst.CSTNode]) -> Statement | None:
    """The nearest whole statement that holds `node` (or is it)."""
    current: cst.CSTNode | None = node
    while current is not None:
        if isinstance(current, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
            return current
        current = parents.get(id(current))
    return None


def dotted_name(node: cst.CSTNode) -> str | None:
    """`a.b.c` for names and attributes, else None."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        prefix = dotted_name(node.value)
        return None if prefix is None else f"{prefix}.{node.attr.value}"
    return None


@lru_cache(maxsize=8192)
def names_in(node: cst.CSTNode) -> frozenset[str]:
    """Every plain name read or written at or below `node` (attribute and keyword names are not)."""
    if isinstance(node, cst.Name):
        return frozenset({node.value})
    if isinstance(node, (cst.Attribute, cst.Arg)):
        return names_in(node.value)
    return frozenset().union(*(names_in(child) for child in children(node)))


@lru_cache(maxsize=4096)
def assigned_names(node: cst.CSTNode) -> frozenset[str]:
    """Every name bound at or below `node`: assignments, loop targets, parameters of nested functions."""
    bound: set[str] = set()
    for inner in walk(node):
        if isinstance(inner, (cst.AssignTarget, cst.AugAssign, cst.AnnAssign, cst.For, cst.NamedExpr)):
            bound |= _target_names(inner.target)
        elif isinstance(inner, cst.AsName):
            bound |= _target_names(inner.name)
        elif isinstance(inner, cst.Param):
            bound.add(inner.name.value)
    return frozenset(bound)


def _target_names(target: cst.CSTNode) -> set[str]:
    if isinstance(target, cst.Name):
        return {target.value}
    if isinstance(target, (cst.Tuple, cst.List)):
        return set().union(*(_target_names(element.value) for element in target.elements))
    return set()


def fresh_name(module: cst.Module, base: str) -> str:
    """`base`, or `base_2`, `base_3` … : the first that the module does not use anywhere."""
    used = {node.value for node in find(module, cst.Name)}
    name, count = base, 1
    while name in used:
        count += 1
        name = f"{base}_{count}"
    return name


def parameters(function: cst.FunctionDef) -> list[cst.Param]:
    """All named parameters in order: positional, then keyword-only."""
    params = function.params
    return [*params.posonly_params, *params.params, *params.kwonly_params]


def parameter_names(function: cst.FunctionDef) -> list[str]:
    """The names of `parameters`."""
    return [param.name.value for param in parameters(function)]


def body_of(node: cst.FunctionDef | cst.For | cst.If | cst.While) -> Sequence[Statement]:
    """The statements of a block; raises RewriteError for a one-line suite (`if x: y`)."""
    if not isinstance(node.body, cst.IndentedBlock):
        raise RewriteError("one-line blocks (`if x: y`) are not rewritten")
    return node.body.body  # type: ignore[return-value]


def integer(node: cst.CSTNode | None) -> int | None:
    """The value of an integer literal, else None."""
    if isinstance(node, cst.Integer):
        # not evaluated_value, which parses: parses that do not take turns disturb each other (evaluator/syntax.py)
        return int(node.value, 0)
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        inner = integer(node.expression)
        return None if inner is None else -inner
    return None


def single_assignment(node: cst.CSTNode) -> tuple[str, cst.BaseExpression] | None:
    """`(name, value)` of a statement line `name = value` alone on its line; else None."""
    if isinstance(node, cst.SimpleStatementLine) and len(node.body) == 1:
        small = node.body[0]
        if isinstance(small, cst.Assign) and len(small.targets) == 1:
            target = small.targets[0].target
            if isinstance(target, cst.Name):
                return target.value, small.value
    return None


def definitions(function: cst.FunctionDef) -> dict[str, list[cst.BaseExpression]]:
    """Every plain `name = value` in a function, values in the order of the source."""
    found: dict[str, list[cst.BaseExpression]] = {}
    for line in find(function.body, cst.SimpleStatementLine):
        pair = single_assignment(line)
        if pair is not None:
            found.setdefault(pair[0], []).append(pair[1])
    return found
