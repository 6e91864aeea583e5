"""Editing concrete syntax trees: formatting and comments survive, and nodes are replaced by identity.

Look a node up in a module from `parse`, build its replacement, and hand both to `replace`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import libcst as cst

from policy.rewrites.base import RewriteError
from policy.rewrites.cst_read import (
    NodeT,
    Statement,
    body_of,
    code,
    expression,
    parameter_names,
    parent_map,
)


def emit(module: cst.Module, original: str) -> str:
    """The text of `module`; raises RewriteError when the rewrite changed nothing."""
    text = module.code
    if text == original:
        raise RewriteError("the rewrite leaves the source as it is")
    return text


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


BlockT = TypeVar("BlockT", cst.FunctionDef, cst.For, cst.If, cst.While)


def with_body(node: BlockT, body: Sequence[Statement]) -> BlockT:
    """The compound statement with another block of statements."""
    assert isinstance(node.body, cst.IndentedBlock)
    return node.with_changes(body=node.body.with_changes(body=list(body)))
