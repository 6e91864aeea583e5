"""exp_to_exp2: use the base-2 exponential that the hardware has."""

from __future__ import annotations

import libcst as cst

from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.cst_tools import emit, expression, parenthesised, parse, replace
from policy.rewrites.triton_tools import aliases, call_site, call_sites

LOG2_E = "1.4426950408889634"
_OPS = ("exp", "math.exp")


class ExpToExp2Args(RewriteArgs):
    """Which exponential, and whether the factor is folded into a difference."""

    kernel: str
    site: int
    """Index among the kernel's `tl.exp` calls."""
    fold: bool = False
    """`exp(a - b)` becomes `exp2(a*c - b*c)`: one fused multiply-add, and `b*c` can leave the loop."""


class ExpToExp2(Rewrite[ExpToExp2Args]):
    """exp(x) = 2^(x·log2 e): `tl.exp(x)` -> `tl.exp2(x * 1.4427)`."""

    name = "exp_to_exp2"
    Args = ExpToExp2Args
    exact = False

    def candidates(self, source: str, context: RewriteContext) -> list[ExpToExp2Args]:
        """Every exponential; folded too where the argument is a difference."""
        found: list[ExpToExp2Args] = []
        for site in call_sites(parse(source), _OPS):
            if len(site.call.args) != 1:
                continue
            found.append(ExpToExp2Args(kernel=site.kernel, site=site.index))
            if _is_difference(site.call.args[0].value):
                found.append(ExpToExp2Args(kernel=site.kernel, site=site.index, fold=True))
        return found

    def apply(self, source: str, args: ExpToExp2Args, context: RewriteContext) -> str:
        """The source with one exponential in base 2."""
        module = parse(source)
        site = call_site(module, _OPS, args.kernel, args.site)
        if len(site.call.args) != 1:
            raise RewriteError("tl.exp takes one argument")
        value = site.call.args[0].value
        if args.fold:
            if not isinstance(value, cst.BinaryOperation) or not _is_difference(value):
                raise RewriteError("only the exponential of a difference can be folded")
            scaled: cst.BaseExpression = value.with_changes(left=_scaled(value.left), right=_scaled(value.right))
        else:
            scaled = _scaled(value)
        call = site.call.with_changes(
            func=cst.Attribute(expression(aliases(module).tl), cst.Name("exp2")),
            args=[site.call.args[0].with_changes(value=scaled)],
        )
        return emit(replace(module, {site.call: call}), source)

    def explain(self, args: ExpToExp2Args) -> str:
        """Why base 2."""
        how = "with log2(e) folded into the difference" if args.fold else "of x * log2(e)"
        return f"exp {args.site} of {args.kernel} becomes exp2 {how}: one special-function instruction"


def _is_difference(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Subtract)


def _scaled(node: cst.BaseExpression) -> cst.BaseExpression:
    return cst.BinaryOperation(parenthesised(node), cst.Multiply(), cst.Float(LOG2_E))
