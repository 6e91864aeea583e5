"""use_rsqrt: one reciprocal square root instead of a root and a division."""

from __future__ import annotations

import libcst as cst

from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.cst_tools import emit, expression, find, parse, replace
from policy.rewrites.triton_tools import Aliases, aliases, kernel_named, kernels

_ROOTS = ("sqrt", "sqrt_rn", "math.sqrt", "math.sqrt_rn")


class UseRsqrtArgs(RewriteArgs):
    """Which division by a square root."""

    kernel: str
    site: int
    """Index among the kernel's divisions by `tl.sqrt(…)`."""


class UseRsqrt(Rewrite[UseRsqrtArgs]):
    """`1.0 / tl.sqrt(v)` -> `tl.rsqrt(v)`; `x / tl.sqrt(v)` -> `x * tl.rsqrt(v)`."""

    name = "use_rsqrt"
    Args = UseRsqrtArgs
    exact = False

    def candidates(self, source: str, context: RewriteContext) -> list[UseRsqrtArgs]:
        """Every division by a square root."""
        module = parse(source)
        known = aliases(module)
        return [
            UseRsqrtArgs(kernel=kernel.name.value, site=index)
            for kernel in kernels(module)
            for index in range(len(_divisions(kernel, known)))
        ]

    def apply(self, source: str, args: UseRsqrtArgs, context: RewriteContext) -> str:
        """The source with one root turned into a reciprocal root."""
        module = parse(source)
        known = aliases(module)
        found = _divisions(kernel_named(module, args.kernel), known)
        if not 0 <= args.site < len(found):
            raise RewriteError(f"kernel {args.kernel!r} has no division number {args.site} by a tl.sqrt")
        node = found[args.site]
        assert isinstance(node.right, cst.Call)
        root = node.right.with_changes(func=expression(f"{known.tl}.rsqrt"))
        if isinstance(node.left, (cst.Float, cst.Integer)) and float(node.left.value) == 1:
            new: cst.BaseExpression = root.with_changes(lpar=node.lpar, rpar=node.rpar)
        else:
            new = node.with_changes(operator=cst.Multiply(), right=root)
        return emit(replace(module, {node: new}), source)

    def explain(self, args: UseRsqrtArgs) -> str:
        """Why the reciprocal root."""
        return f"division {args.site} of {args.kernel} by a square root becomes one rsqrt instruction"


def _divisions(kernel: cst.FunctionDef, known: Aliases) -> list[cst.BinaryOperation]:
    return [
        node
        for node in find(kernel.body, cst.BinaryOperation)
        if isinstance(node.operator, cst.Divide)
        and isinstance(node.right, cst.Call)
        and known.language_name(node.right.func) in _ROOTS
    ]
