"""reciprocal_multiply: divide once per row and multiply everywhere else."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.cst_tools import (
    Statement,
    assigned_names,
    emit,
    find,
    fresh_name,
    parse,
    replace,
    statement,
    statement_of,
)
from policy.rewrites.dataflow import Flow, rank_of, ranks
from policy.rewrites.triton_tools import aliases, kernels


class ReciprocalMultiplyArgs(RewriteArgs):
    """Which division."""

    kernel: str
    site: int
    """Index among the kernel's divisions of a block by a value of lower rank."""


@dataclass(frozen=True)
class _Division:
    node: cst.BinaryOperation
    divisor: str
    """The name divided by; `s` in `x / s[:, None]`."""
    anchor: Statement
    """The reciprocal is taken just before this statement."""


class ReciprocalMultiply(Rewrite[ReciprocalMultiplyArgs]):
    """`x / s` -> `inv_s = 1.0 / s` outside the loops that do not change `s`, and `x * inv_s`."""

    name = "reciprocal_multiply"
    Args = ReciprocalMultiplyArgs
    exact = False

    def candidates(self, source: str, context: RewriteContext) -> list[ReciprocalMultiplyArgs]:
        """Every division of a block by a per-row value."""
        module = parse(source)
        return [
            ReciprocalMultiplyArgs(kernel=kernel.name.value, site=index)
            for kernel in kernels(module)
            for index in range(len(_divisions(module, kernel)))
        ]

    def apply(self, source: str, args: ReciprocalMultiplyArgs, context: RewriteContext) -> str:
        """The source with one division turned into a multiplication."""
        module = parse(source)
        found = [d for k in kernels(module) if k.name.value == args.kernel for d in _divisions(module, k)]
        if not 0 <= args.site < len(found):
            raise RewriteError(f"kernel {args.kernel!r} has no division {args.site} of a block by a row value")
        division = found[args.site]
        inverse = fresh_name(module, f"inv_{division.divisor}")
        line = statement(f"{inverse} = 1.0 / {division.divisor}\n")
        product = _product(division, inverse)
        inside = replace(division.anchor, {division.node: product})
        return emit(replace(module, {division.anchor: cst.FlattenSentinel([line, inside])}), source)

    def explain(self, args: ReciprocalMultiplyArgs) -> str:
        """Why a reciprocal."""
        return f"division {args.site} of {args.kernel} becomes a product with a reciprocal taken once per row"


def _product(division: _Division, inverse: str) -> cst.BinaryOperation:
    right = division.node.right
    factor: cst.BaseExpression = cst.Name(inverse)
    if isinstance(right, cst.Subscript):
        factor = right.with_changes(value=factor)
    operator = cst.Multiply(
        whitespace_before=getattr(division.node.operator, "whitespace_before", cst.SimpleWhitespace(" ")),
        whitespace_after=getattr(division.node.operator, "whitespace_after", cst.SimpleWhitespace(" ")),
    )
    return division.node.with_changes(operator=operator, right=factor)


def _divisions(module: cst.Module, kernel: cst.FunctionDef) -> list[_Division]:
    known = aliases(module)
    sizes = ranks(kernel, known)
    flow = Flow(kernel)
    found: list[_Division] = []
    for node in find(kernel.body, cst.BinaryOperation):
        if not isinstance(node.operator, cst.Divide):
            continue
        base = node.right.value if isinstance(node.right, cst.Subscript) else node.right
        rank, divided = rank_of(base, sizes, known), rank_of(node.left, sizes, known)
        if not isinstance(base, cst.Name) or rank is None or divided is None or rank >= divided:
            continue
        anchor = _anchor(flow, node, base.value)
        if anchor is not None:
            found.append(_Division(node, base.value, anchor))
    return found


def _anchor(flow: Flow, node: cst.CSTNode, divisor: str) -> Statement | None:
    """The statement before which the reciprocal is valid: out of every loop that leaves the divisor alone."""
    anchor = statement_of(node, flow.parents)
    if anchor is None or not isinstance(anchor, cst.SimpleStatementLine):
        return None
    outermost: Statement = anchor
    for loop in flow.loops_around(node):
        if divisor in assigned_names(loop) or isinstance(loop, cst.While):
            break
        outermost = loop
    return outermost
