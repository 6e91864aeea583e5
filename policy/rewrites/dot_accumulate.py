"""dot_accumulate: let the tensor cores add to the accumulator."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.cst_tools import (
    argument,
    code,
    definitions,
    emit,
    find,
    keyword,
    parse,
    replace,
    with_keyword,
)
from policy.rewrites.triton_tools import Aliases, aliases, kernel_named, kernels


class DotAccumulateArgs(RewriteArgs):
    """Which accumulation."""

    kernel: str
    site: int
    """Index among the kernel's statements `acc += tl.dot(a, b)`."""


@dataclass(frozen=True)
class _Sum:
    statement: cst.AugAssign | cst.Assign
    accumulator: cst.Name
    addend: cst.BaseExpression
    """What the product is added to: the accumulator, perhaps scaled."""
    dot: cst.Call


class DotAccumulate(Rewrite[DotAccumulateArgs]):
    """`acc += tl.dot(a, b)` -> `acc = tl.dot(a, b, acc=acc)`, for float32 accumulators.

    A scaled accumulator, `acc = acc * s[:, None] + tl.dot(a, b)`, goes in with its scale.
    """

    name = "dot_accumulate"
    Args = DotAccumulateArgs
    exact = False

    def candidates(self, source: str, context: RewriteContext) -> list[DotAccumulateArgs]:
        """Every sum of an accumulator and a dot product."""
        module = parse(source)
        known = aliases(module)
        return [
            DotAccumulateArgs(kernel=kernel.name.value, site=index)
            for kernel in kernels(module)
            for index in range(len(_sums(kernel, known)))
        ]

    def apply(self, source: str, args: DotAccumulateArgs, context: RewriteContext) -> str:
        """The source with one sum moved into the dot product."""
        module = parse(source)
        sums = _sums(kernel_named(module, args.kernel), aliases(module))
        if not 0 <= args.site < len(sums):
            raise RewriteError(f"kernel {args.kernel!r} has no sum number {args.site} with a tl.dot")
        found = sums[args.site]
        assign = cst.Assign(
            targets=[cst.AssignTarget(found.accumulator)],
            value=with_keyword(found.dot, "acc", found.addend.deep_clone()),
        )
        return emit(replace(module, {found.statement: assign}), source)

    def explain(self, args: DotAccumulateArgs) -> str:
        """Why inside."""
        return f"dot {args.site} of {args.kernel} adds to its accumulator itself: no separate addition"


def _sums(kernel: cst.FunctionDef, known: Aliases) -> list[_Sum]:
    found: list[_Sum] = []
    values = definitions(kernel)
    for node in find(kernel.body, cst.BaseSmallStatement):  # type: ignore[type-abstract]
        match = _sum(node)
        if match is None or known.language_name(match.dot.func) != "dot":
            continue
        taken = argument(match.dot, "acc", 2) is not None or keyword(match.dot, "out_dtype") is not None
        starts = values.get(match.accumulator.value, [])
        if not taken and any(_is_float32_block(value, known) for value in starts):
            found.append(match)
    return found


def _sum(node: cst.BaseSmallStatement) -> _Sum | None:
    if isinstance(node, cst.AugAssign) and isinstance(node.operator, cst.AddAssign):
        if isinstance(node.target, cst.Name) and isinstance(node.value, cst.Call):
            return _Sum(node, node.target, cst.Name(node.target.value), node.value)
    elif isinstance(node, cst.Assign) and len(node.targets) == 1:
        target, value = node.targets[0].target, node.value
        if (
            isinstance(target, cst.Name)
            and isinstance(value, cst.BinaryOperation)
            and isinstance(value.operator, cst.Add)
            and _is_scaled(value.left, target.value)
            and isinstance(value.right, cst.Call)
        ):
            return _Sum(node, target, value.left, value.right)
    return None


def _is_scaled(node: cst.BaseExpression, name: str) -> bool:
    """Whether a node is the accumulator, or the accumulator times something: a float32 block still."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
        return _is_scaled(node.left, name) or _is_scaled(node.right, name)
    return isinstance(node, cst.Name) and node.value == name


def _is_float32_block(value: cst.BaseExpression, known: Aliases) -> bool:
    """`tl.zeros(…, tl.float32)` or `tl.full(…, 0.0, tl.float32)`: what tl.dot accumulates in."""
    if not isinstance(value, cst.Call) or known.language_name(value.func) not in ("zeros", "full"):
        return False
    position = 1 if known.language_name(value.func) == "zeros" else 2
    dtype = argument(value, "dtype", position)
    return dtype is not None and code(dtype.value).endswith("float32")
