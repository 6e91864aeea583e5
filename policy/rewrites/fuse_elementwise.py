"""fuse_elementwise: one kernel instead of two with a buffer between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

import libcst as cst

from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.cst_tools import (
    Statement,
    argument,
    body_of,
    code,
    emit,
    expression,
    find,
    fresh_name,
    names_in,
    parameter_names,
    parse,
    replace,
    single_assignment,
    statement,
    substitute,
    walk,
    with_body,
)
from policy.rewrites.fusion_checks import Pair, Part, copies_shape, fusable_pair, is_expression, line_of
from policy.rewrites.triton_tools import (
    Aliases,
    constexpr_names,
    launch_argument,
    launches,
)

NodeT = TypeVar("NodeT", bound=cst.CSTNode)


class FuseElementwiseArgs(RewriteArgs):
    """The two kernels, in the order of their launches."""

    first: str
    second: str


class FuseElementwise(Rewrite[FuseElementwiseArgs]):
    """Two element-wise kernels launched one after the other, the second reading what the first wrote.

    The fused kernel keeps the value in registers, rounded to the buffer's type; the buffer goes. Both kernels
    must address it alike, under the same mask and grid, and nothing else may use it.
    """

    name = "fuse_elementwise"
    Args = FuseElementwiseArgs

    def candidates(self, source: str, context: RewriteContext) -> list[FuseElementwiseArgs]:
        """Every pair of launches that can be one."""
        module = parse(source)
        found = []
        for one, two in pairwise(launches(module)):
            try:
                fusable_pair(module, one.kernel, two.kernel)
            except RewriteError:
                continue
            found.append(FuseElementwiseArgs(first=one.kernel, second=two.kernel))
        return found

    def apply(self, source: str, args: FuseElementwiseArgs, context: RewriteContext) -> str:
        """The source with one kernel and one launch less."""
        module = parse(source)
        pair = fusable_pair(module, args.first, args.second)
        short = f"{args.first.removesuffix('_kernel')}_{args.second}"
        kernel, passed = _fused_kernel(pair, fresh_name(module, short))
        edits: dict[cst.CSTNode, cst.CSTNode | cst.RemovalSentinel] = {
            pair.first.kernel: cst.RemoveFromParent(),
            pair.second.kernel: kernel,
            line_of(pair.first): cst.RemoveFromParent(),
            pair.allocation: cst.RemoveFromParent(),
            pair.second.launch.call: _fused_launch(pair, kernel, passed),
        }
        made = single_assignment(pair.allocation)
        assert made is not None
        for call in find(module, cst.Call):
            if copies_shape(call, pair.buffer):
                edits[call] = made[1].deep_clone()
        return emit(replace(module, edits), source)

    def explain(self, args: FuseElementwiseArgs) -> str:
        """What is saved."""
        return f"{args.first} and {args.second} become one kernel: a buffer is neither written nor read back"


def _fused_kernel(pair: Pair, name: str) -> tuple[cst.FunctionDef, dict[str, cst.BaseExpression]]:
    """The kernel, and what its launch passes for every parameter."""
    one, two = pair.first, pair.second
    passed = {p: _passed(one, p) for p in parameter_names(one.kernel) if p != pair.written}
    constants = [p for p in constexpr_names(one.kernel, one.known) if p != pair.written]
    by_value = {one.host_value(p): p for p in passed}
    taken = set(names_in(one.kernel)) | set(passed)
    value_name = _unused(pair.buffer, taken)
    renamed: dict[str, str] = {}
    for parameter in parameter_names(two.kernel):
        value = two.host_value(parameter)
        is_constant = parameter in constexpr_names(two.kernel, two.known)
        if parameter == pair.read:
            continue
        if value in by_value and (by_value[value] in constants) == is_constant:
            renamed[parameter] = by_value[value]
            continue
        new = _unused(parameter, taken)
        renamed[parameter], passed[new] = new, _passed(two, parameter)
        constants += [new] if is_constant else []
    body = [*_first_lines(pair, value_name), *_second_lines(pair, value_name, renamed, taken)]
    order = [*(p for p in passed if p not in constants), *constants]
    params = [_parameter(p, p in constants, one.known) for p in order]
    leading = [*one.kernel.leading_lines, *(ln for ln in two.kernel.leading_lines if ln.comment is not None)]
    kernel = with_body(two.kernel, body).with_changes(
        name=cst.Name(name), params=cst.Parameters(params=params), leading_lines=leading
    )
    return kernel, {p: passed[p] for p in order}


def _passed(part: Part, parameter: str) -> cst.BaseExpression:
    arg = launch_argument(part.launch, part.kernel, parameter)
    assert arg is not None
    return arg.value.deep_clone()


def _parameter(name: str, is_constant: bool, known: Aliases) -> cst.Param:
    note = cst.Annotation(expression(f"{known.tl}.constexpr")) if is_constant else None
    return cst.Param(cst.Name(name), annotation=note)


def _unused(name: str, taken: set[str]) -> str:
    new, count = name, 1
    while new in taken:
        count += 1
        new = f"{name}_{count}"
    taken.add(new)
    return new


def _first_lines(pair: Pair, value_name: str) -> list[Statement]:
    """The first kernel with its store replaced by the value, rounded as the buffer would round it."""
    store = pair.first.accesses("store", pair.written)[0]
    lines: list[Statement] = []
    for line in body_of(pair.first.kernel):
        if store not in walk(line):
            lines.append(_retyped(line, pair.written, pair.dtype))
            continue
        value = argument(store, "value", 1)
        assert value is not None
        text = code(_retyped(value.value, pair.written, pair.dtype))
        rounded = text if text.endswith(f".to({pair.dtype})") else f"({text}).to({pair.dtype})"
        lines.append(statement(f"{value_name} = {code(expression(rounded))}\n"))
    return lines


def _retyped(node: NodeT, parameter: str, dtype: str) -> NodeT:
    """`node` with the element type of the vanished pointer spelled in another way."""
    gone = f"{parameter}.dtype.element_ty"
    types = [n for n in find(node, cst.Attribute) if code(n) == gone]
    return replace(node, {n: expression(dtype) for n in types}) if types else node


def _second_lines(pair: Pair, value_name: str, renamed: Mapping[str, str], taken: set[str]) -> list[Statement]:
    """The second kernel without what the first already computed, reading the value instead of the buffer."""
    known_values: dict[str, str] = {}
    for line in body_of(pair.first.kernel):
        assigned = single_assignment(line)
        if assigned is not None:
            known_values[code(assigned[1])] = assigned[0]
    names = {old: cst.Name(new) for old, new in renamed.items()}
    loads = {call: cst.Name(value_name) for call in pair.second.accesses("load", pair.read)}
    lines: list[Statement] = []
    for line in body_of(pair.second.kernel):
        if _is_docstring(line):
            continue
        assigned = single_assignment(line)
        fresh = _retyped(replace(line, loads), pair.read, pair.dtype)
        if assigned is None:
            lines.append(substitute(fresh, names))
            continue
        value = single_assignment(substitute(fresh, {k: v for k, v in names.items() if k != assigned[0]}))
        assert value is not None
        if code(value[1]) in known_values:
            names[assigned[0]] = cst.Name(known_values[code(value[1])])
            continue
        new = _unused(assigned[0], taken)
        names[assigned[0]] = cst.Name(new)
        lines.append(substitute(fresh, names))
    return lines


def _is_docstring(line: Statement) -> bool:
    return is_expression(line) and not find(line, cst.Call)


def _fused_launch(pair: Pair, kernel: cst.FunctionDef, passed: Mapping[str, cst.BaseExpression]) -> cst.Call:
    """`fused[grid](…)`: values by position, constants by name, launch options of the first launch."""
    known = pair.first.known
    constants = constexpr_names(kernel, known)
    parts = [f"{name}={code(value)}" if name in constants else code(value) for name, value in passed.items()]
    parts += _options(pair.first)
    return cst.ensure_type(
        expression(f"{kernel.name.value}[{code(pair.second.launch.grid)}]({', '.join(parts)})"), cst.Call
    )


def _options(part: Part) -> Sequence[str]:
    names = parameter_names(part.kernel)
    return [
        f"{arg.keyword.value}={code(arg.value)}"
        for arg in part.launch.call.args
        if arg.keyword is not None and arg.keyword.value not in names
    ]
