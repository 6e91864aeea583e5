"""online_reduction: two passes over a row, a maximum and a sum of exponentials, become one."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.cst_tools import (
    Replacement,
    Statement,
    body_of,
    code,
    emit,
    find,
    fresh_name,
    names_in,
    parse,
    replace,
    statements,
    with_body,
)
from policy.rewrites.loops import Accumulation, RowLoop, accumulation, initial, is_neutral, loop_block, used_in
from policy.rewrites.triton_tools import Aliases, aliases, kernel_named, kernels


class OnlineReductionArgs(RewriteArgs):
    """Which kernel."""

    kernel: str


@dataclass(frozen=True)
class _Passes:
    first: RowLoop
    second: RowLoop
    maximum: Accumulation
    total: Accumulation
    exponential: str
    """`tl.exp` or `tl.exp2` as the source spells it."""
    shifted: cst.BaseExpression
    """What the maximum is subtracted from."""
    start: Statement
    """`total = 0.0`."""


class OnlineReduction(Rewrite[OnlineReductionArgs]):
    """max pass + sum-of-exponentials pass -> one pass that rescales the sum when the maximum grows.

    Source: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).
    """

    name = "online_reduction"
    Args = OnlineReductionArgs
    exact = False

    def candidates(self, source: str, context: RewriteContext) -> list[OnlineReductionArgs]:
        """Every kernel with such a pair of neighbouring passes."""
        module = parse(source)
        found = []
        for kernel in kernels(module):
            try:
                _passes(kernel, aliases(module))
            except RewriteError:
                continue
            found.append(OnlineReductionArgs(kernel=kernel.name.value))
        return found

    def apply(self, source: str, args: OnlineReductionArgs, context: RewriteContext) -> str:
        """The kernel with one pass fewer over the row."""
        module = parse(source)
        known = aliases(module)
        kernel = kernel_named(module, args.kernel)
        pair = _passes(kernel, known)
        grown = fresh_name(module, f"new_{pair.maximum.name}")
        shift = fresh_name(module, f"shift_{pair.maximum.name}")
        # While everything seen is -inf the shift is 0: -inf - (-inf) would be NaN.
        text = (
            f"{grown} = {known.tl}.maximum({pair.maximum.name}, {known.tl}.max({code(pair.maximum.value)}, axis=0))\n"
            f'{shift} = {known.tl}.where({grown} == -float("inf"), 0.0, {grown})\n'
            f"{pair.total.name} = {pair.total.name} * {pair.exponential}({pair.maximum.name} - {shift}) + "
            f"{known.tl}.sum({pair.exponential}({code(pair.shifted)} - {shift}), axis=0)\n"
            f"{pair.maximum.name} = {grown}\n"
        )
        body = [line for line in pair.first.body if line is not pair.maximum.line] + statements(text)
        merged = with_body(pair.first.node, body)
        start = pair.start.with_changes(leading_lines=[])
        edits: dict[cst.CSTNode, Replacement] = {
            pair.first.node: cst.FlattenSentinel([start, merged]),
            pair.second.node: cst.RemoveFromParent(),
            pair.start: cst.RemoveFromParent(),
        }
        return emit(replace(module, edits), source)

    def explain(self, args: OnlineReductionArgs) -> str:
        """Why online."""
        return f"{args.kernel}: maximum and sum in one pass over the row instead of two"


def _passes(kernel: cst.FunctionDef, known: Aliases) -> _Passes:
    block = loop_block(kernel, known)
    for first, second in zip(block.loops, block.loops[1:], strict=False):
        maximum = _last(first, "max", known)
        total = _last(second, "sum", known)
        if maximum is None or total is None or first.over != second.over:
            continue
        start_of_max = initial(block.lines, first.node, maximum.name)
        start = initial(block.lines, second.node, total.name)
        if start_of_max is None or start is None:
            continue
        neutral = is_neutral(start_of_max[1], "max") and is_neutral(start[1], "sum")
        between = block.lines[block.lines.index(first.node) + 1 : block.lines.index(second.node)]
        alone = all(line is start[0] for line in between)
        exponential = _exponential(total.value, maximum.name, known)
        if neutral and alone and exponential is not None and _same_preparation(first, second, maximum, total):
            if used_in(first.body, total.name) or used_in(first.body, maximum.name, but=[maximum.line]):
                continue
            return _Passes(first, second, maximum, total, exponential[0], exponential[1], start[0])
    raise RewriteError(f"{kernel.name.value} has no maximum pass followed by a sum of exponentials")


def _last(loop: RowLoop, kind: str, known: Aliases) -> Accumulation | None:
    found = accumulation(loop.body[-1], known)
    return found if found is not None and found.kind == kind else None


def _same_preparation(first: RowLoop, second: RowLoop, maximum: Accumulation, total: Accumulation) -> bool:
    """Whether both bodies compute the same before they accumulate (the loop variables may differ in name)."""
    if first.var != second.var:
        return False
    one = [code(line) for line in body_of(first.node) if line is not maximum.line]
    two = [code(line) for line in body_of(second.node) if line is not total.line]
    return one == two


def _exponential(node: cst.BaseExpression, maximum: str, known: Aliases) -> tuple[str, cst.BaseExpression] | None:
    """`(exp, x)` of `exp(x - maximum)`; None for anything else."""
    if not isinstance(node, cst.Call) or len(node.args) != 1:
        return None
    if (known.language_name(node.func) or "").split(".")[-1] not in ("exp", "exp2"):
        return None
    inner = node.args[0].value
    if isinstance(inner, cst.BinaryOperation) and isinstance(inner.operator, cst.Subtract):
        left, right = inner.left, inner.right
        plain = code(right) == maximum and maximum not in names_in(left)
        if plain and not find(left, cst.Call):
            return code(node.func), left
    return None
