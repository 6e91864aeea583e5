"""Reading and editing Triton sources as concrete syntax trees, so that formatting and comments survive.

Nodes are found in the order of the source, and edits replace nodes by identity: look a node up in a module
from `parse`, build its replacement, and hand both to `replace`. Modules are shared through a cache, which is
safe since libcst nodes are never changed in place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, TypeVar

import libcst as cst

from policy.rewrites.base import RewriteError

NodeT = TypeVar("NodeT", bound=cst.CSTNode)
Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement


# --- parse and emit ---------------------------------------------------------------------------------


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


def emit(module: cst.Module, original: str) -> str:
    """The text of `module`; raises RewriteError when the rewrite changed nothing."""
    text = module.code
    if text == original:
        raise RewriteError("the rewrite leaves the source as it is")
    return text


def expression(text: str) -> cst.BaseExpression:
    """The expression node of `text`."""
    return cst.parse_expression(text)


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


# --- walk -------------------------------------------------------------------------------------------


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


# --- names ------------------------------------------------------------------------------------------


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


def rename(node: NodeT, old: str, new: str) -> NodeT:
    """`node` with every plain name `old` replaced (attributes and keyword names stay)."""
    return substitute(node, {old: cst.Name(new)})


def substitute(node: NodeT, values: Mapping[str, cst.BaseExpression]) -> NodeT:
    """`node` with plain names replaced by expressions, parenthesised where precedence may ask for it."""
    if isinstance(node, cst.Name) and node.value in values:
        return values[node.value].deep_clone()  # type: ignore[return-value]
    return _visited(node, _Substitute(values))


class _Substitute(cst.CSTTransformer):
    def __init__(self, values: Mapping[str, cst.BaseExpression]) -> None:
        self.values = values

    def leave_Attribute(  # noqa: N802
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:  # noqa: N802
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Name(  # noqa: N802
        self, original_node: cst.Name, updated_node: cst.Name
    ) -> cst.BaseExpression:
        value = self.values.get(original_node.value)
        return updated_node if value is None else parenthesised(value.deep_clone())


def parenthesised(node: cst.BaseExpression) -> cst.BaseExpression:
    """`node`, in parentheses unless it is an atom (name, number, call, attribute, subscript)."""
    atoms = (cst.Name, cst.BaseNumber, cst.Call, cst.Attribute, cst.Subscript, cst.SimpleString)
    if isinstance(node, atoms) or node.lpar:
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


# --- functions ---


def parameters(function: cst.FunctionDef) -> list[cst.Param]:
    """All named parameters in order: positional, then keyword-only."""
    params = function.params
    return [*params.posonly_params, *params.params, *params.kwonly_params]


def parameter_names(function: cst.FunctionDef) -> list[str]:
    """The names of `parameters`."""
    return [param.name.value for param in parameters(function)]


# --- edits ------------------------------------------------------------------------------------------

Replacement = cst.CSTNode | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNode]


def replace(root: NodeT, edits: Mapping[Any, Replacement]) -> NodeT:
    """`root` with nodes replaced by identity in one pass.

    A node inside another edited node is lost unless the outer replacement keeps it. Values may be
    `cst.RemoveFromParent()` or a `cst.FlattenSentinel` of several statements.
    """
    parents = parent_map(root)
    path: set[int] = set()
    for node in edits:
        current = parents.get(id(node))
        while current is not None and id(current) not in path:
            path.add(id(current))
            current = parents.get(id(current))
    return _visited(root, _Replace({id(node): new for node, new in edits.items()}, path))


class _Replace(cst.CSTTransformer):
    def __init__(self, edits: Mapping[int, Replacement], path: set[int]) -> None:
        self.edits = edits
        self.path = path

    def on_visit(self, node: cst.CSTNode) -> bool:
        # Only what leads to an edited node is rebuilt; the rest of the tree is shared.
        return id(node) in self.path

    def on_leave(  # type: ignore[override]
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> Replacement:
        return self.edits.get(id(original_node), updated_node)


def edit(root: NodeT, change: Callable[[cst.CSTNode, cst.CSTNode], Replacement]) -> NodeT:
    """`root` rebuilt bottom-up with `change(original, updated)` for every node."""
    return _visited(root, _Edit(change))


class _Edit(cst.CSTTransformer):
    def __init__(self, change: Callable[[cst.CSTNode, cst.CSTNode], Replacement]) -> None:
        self.change = change

    def on_leave(  # type: ignore[override]
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> Replacement:
        return self.change(original_node, updated_node)


def _visited(node: NodeT, transformer: cst.CSTTransformer) -> NodeT:
    result = node.visit(transformer)
    if not isinstance(result, cst.CSTNode):
        raise RewriteError("the rewrite would remove the whole file")
    return result


def keyword(call: cst.Call, name: str) -> cst.Arg | None:
    """The keyword argument `name` of a call."""
    return next((arg for arg in call.args if arg.keyword is not None and arg.keyword.value == name), None)


def argument(call: cst.Call, name: str, position: int) -> cst.Arg | None:
    """The argument `name`, by keyword or at `position` (0-based)."""
    named = keyword(call, name)
    if named is not None:
        return named
    if position < len(call.args):
        arg = call.args[position]
        return arg if arg.keyword is None and not arg.star else None
    return None


def has_star_arguments(call: cst.Call) -> bool:
    """Whether a call passes `*args` or `**kwargs`, so that its arguments cannot be read."""
    return any(arg.star for arg in call.args)


def with_keyword(call: cst.Call, name: str, value: str | cst.BaseExpression) -> cst.Call:
    """The call with `name=value` added at the end, or replaced where it is."""
    node = expression(value) if isinstance(value, str) else value
    existing = keyword(call, name)
    if existing is not None:
        args = [arg.with_changes(value=node) if arg is existing else arg for arg in call.args]
        return call.with_changes(args=args)
    new = keyword_arg(name, node)
    if call.args and _ends_line(call.args[-1]):
        new = new.with_changes(comma=call.args[-1].comma)
    return call.with_changes(args=[*_open_ended(call), new])


def keyword_arg(name: str, value: cst.BaseExpression) -> cst.Arg:
    """`name=value` without spaces round the sign."""
    tight = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return cst.Arg(value=value, keyword=cst.Name(name), equal=tight)


def _open_ended(call: cst.Call) -> list[cst.Arg]:
    """The call's arguments with a comma after the last, spaced like the comma before it."""
    args = list(call.args)
    if not args:
        return args
    last = args[-1]
    if not isinstance(last.comma, cst.Comma):
        # A multi-line call without a trailing comma keeps its closing whitespace at the very end.
        spaced = args[-2].comma if len(args) > 1 else cst.MaybeSentinel.DEFAULT
        comma = spaced if isinstance(spaced, cst.Comma) else cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        args[-1] = last.with_changes(comma=comma, whitespace_after_arg=cst.SimpleWhitespace(""))
    elif _ends_line(last) and len(args) > 1:
        args[-1] = last.with_changes(comma=args[-2].comma)
    elif not code(last.comma).endswith((" ", "\n")):
        args[-1] = last.with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
    return args


def _ends_line(arg: cst.Arg) -> bool:
    """Whether the argument's comma is followed by a line break, as before a closing bracket of its own line."""
    return isinstance(arg.comma, cst.Comma) and "\n" in code(arg.comma)


def without_keyword(call: cst.Call, name: str) -> cst.Call:
    """The call without the keyword argument `name`."""
    kept = [arg for arg in call.args if arg.keyword is None or arg.keyword.value != name]
    if kept and len(kept) < len(call.args):
        last = call.args[-1]
        kept[-1] = kept[-1].with_changes(comma=last.comma, whitespace_after_arg=last.whitespace_after_arg)
    return call.with_changes(args=kept)


def with_parameter(
    function: cst.FunctionDef, name: str, annotation: str | None = None, default: str | None = None
) -> cst.FunctionDef:
    """The function with one more positional-or-keyword parameter at the end."""
    if name in parameter_names(function):
        raise RewriteError(f"{function.name.value} already has a parameter named {name!r}")
    params = list(function.params.params)
    if default is None and any(param.default is not None for param in params):
        raise RewriteError(f"{function.name.value} ends with defaults: a plain parameter cannot follow")
    if params:
        params[-1] = params[-1].with_changes(comma=_parameter_comma(params))
    note = None if annotation is None else cst.Annotation(expression(annotation))
    value = None if default is None else expression(default)
    params.append(cst.Param(cst.Name(name), annotation=note, default=value, comma=_last_comma(function)))
    return function.with_changes(params=function.params.with_changes(params=params))


def _parameter_comma(params: Sequence[cst.Param]) -> cst.Comma:
    if len(params) > 1 and isinstance(params[0].comma, cst.Comma):
        return params[0].comma
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def _last_comma(function: cst.FunctionDef) -> cst.Comma | cst.MaybeSentinel:
    params = function.params.params
    return params[-1].comma if params else cst.MaybeSentinel.DEFAULT


def insert_at_start(function: cst.FunctionDef, new: Sequence[Statement]) -> cst.FunctionDef:
    """The function with statements inserted before its first statement, after the docstring."""
    body = list(body_of(function))
    at = 1 if body and _is_docstring(body[0]) else 0
    return with_body(function, [*body[:at], *new, *body[at:]])


def _is_docstring(node: cst.CSTNode) -> bool:
    return (
        isinstance(node, cst.SimpleStatementLine)
        and len(node.body) == 1
        and isinstance(node.body[0], cst.Expr)
        and isinstance(node.body[0].value, (cst.SimpleString, cst.ConcatenatedString))
    )


def body_of(node: cst.FunctionDef | cst.For | cst.If | cst.While) -> Sequence[Statement]:
    """The statements of a block; raises RewriteError for a one-line suite (`if x: y`)."""
    if not isinstance(node.body, cst.IndentedBlock):
        raise RewriteError("one-line blocks (`if x: y`) are not rewritten")
    return node.body.body  # type: ignore[return-value]


BlockT = TypeVar("BlockT", cst.FunctionDef, cst.For, cst.If, cst.While)


def with_body(node: BlockT, body: Sequence[Statement]) -> BlockT:
    """The compound statement with another block of statements."""
    assert isinstance(node.body, cst.IndentedBlock)
    return node.with_changes(body=node.body.with_changes(body=list(body)))


def insert_before(root: NodeT, target: Statement, new: Sequence[Statement]) -> NodeT:
    """`root` with statements inserted just before `target`; the leading comments stay with the target."""
    return replace(root, {target: cst.FlattenSentinel([*new, target])})


def insert_after(root: NodeT, target: Statement, new: Sequence[Statement]) -> NodeT:
    """`root` with statements inserted just after `target`."""
    return replace(root, {target: cst.FlattenSentinel([target, *new])})


# --- constants --------------------------------------------------------------------------------------


def integer(node: cst.CSTNode | None) -> int | None:
    """The value of an integer literal, else None."""
    if isinstance(node, cst.Integer):
        return node.evaluated_value
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
