"""Every config alone: a `@triton.autotune` source becomes one plain source per config.

Configs of one autotuner share an output buffer, so two half-wrong ones can pass together. Each is judged as a file of
its own: the decorator goes, and the config's entries are written into the launches.
"""

from __future__ import annotations

import ast

import libcst as cst
import libcst.matchers as m

from evaluator.syntax import parse_expression
from evaluator.tunables import extract


def split_autotune(source: str) -> list[str]:
    """One source per `triton.Config` of the first autotuned kernel; the source itself when there is none.

    A source with several autotuned kernels is split on each in turn. Raises UsageError for a source that does not
    parse (as `extract` does). Configs that are computed rather than listed cannot be split and are left alone.
    """
    extract(source)
    module = cst.parse_module(source)
    finder = _Finder()
    module.visit(finder)
    if finder.kernel is None:
        return [source]
    split: list[str] = []
    for config in finder.configs:
        split += split_autotune(module.visit(_Unfold(finder.kernel, config)).code)
    return split


def _is_autotune(decorator: cst.Decorator) -> bool:
    call = decorator.decorator
    return isinstance(call, cst.Call) and _last_name(call.func) == "autotune"


def _last_name(node: cst.BaseExpression) -> str:
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""


class _Finder(cst.CSTVisitor):
    """The first kernel whose autotune decorator lists its configs literally."""

    def __init__(self) -> None:
        self.kernel: str | None = None
        self.configs: list[dict[str, str]] = []

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:  # noqa: N802  libcst's name
        for decorator in node.decorators:
            if self.kernel is None and _is_autotune(decorator):
                configs = [_entries(found) for found in m.findall(decorator, m.Call())]
                listed = [entries for entries in configs if entries is not None]
                if listed:
                    self.kernel, self.configs = node.name.value, listed


def _entries(node: cst.CSTNode) -> dict[str, str] | None:
    if not isinstance(node, cst.Call) or _last_name(node.func) != "Config":
        return None
    call = parse_expression(cst.Module([]).code_for_node(node)).body
    assert isinstance(call, ast.Call)
    entries: dict[str, str] = {}
    for argument in call.args:
        if isinstance(argument, ast.Dict):
            for key, value in zip(argument.keys, argument.values, strict=True):
                if isinstance(key, ast.Constant):
                    entries[str(key.value)] = ast.unparse(value)
    entries.update({word.arg: ast.unparse(word.value) for word in call.keywords if word.arg not in (None, "pre_hook")})
    return entries


class _Unfold(cst.CSTTransformer):
    """Removes the decorator and writes one config into every launch of the kernel."""

    def __init__(self, kernel: str, config: dict[str, str]) -> None:
        self._kernel = kernel
        self._config = config

    def leave_FunctionDef(  # noqa: N802  libcst's name
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        if updated_node.name.value != self._kernel:
            return updated_node
        return updated_node.with_changes(
            decorators=[mark for mark in updated_node.decorators if not _is_autotune(mark)]
        )

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:  # noqa: N802  libcst's name
        target = updated_node.func
        if not isinstance(target, cst.Subscript) or _last_name(target.value) != self._kernel:
            return updated_node
        args = [arg for arg in updated_node.args if arg.keyword is None or arg.keyword.value not in self._config]
        added = [
            cst.Arg(
                value=cst.parse_expression(value),
                keyword=cst.Name(name),
                equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
            )
            for name, value in self._config.items()
        ]
        plain = [arg.with_changes(comma=cst.MaybeSentinel.DEFAULT) for arg in args]
        return updated_node.with_changes(args=[*plain, *added])
