"""input_precision: how float32 operands of tl.dot reach the tensor cores."""

from __future__ import annotations

import libcst as cst

from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.cst_tools import emit, keyword, parse, replace, with_keyword, without_keyword
from policy.rewrites.triton_tools import call_site, call_sites


class InputPrecisionArgs(RewriteArgs):
    """Which dot product at which precision."""

    kernel: str
    site: int
    """Index among the kernel's `tl.dot` calls."""
    precision: str
    """`ieee`, `tf32`, `tf32x3` … as the task allows."""


class InputPrecision(Rewrite[InputPrecisionArgs]):
    """`tl.dot(a, b)` -> `tl.dot(a, b, input_precision="tf32x3")`; only on float32 tasks that allow it."""

    name = "input_precision"
    Args = InputPrecisionArgs
    exact = False

    def candidates(self, source: str, context: RewriteContext) -> list[InputPrecisionArgs]:
        """Every precision the task allows, without the one in use."""
        if context.dtype != "float32":
            return []
        return [
            InputPrecisionArgs(kernel=site.kernel, site=site.index, precision=precision)
            for site in call_sites(parse(source), ("dot",))
            for precision in context.input_precisions
            if precision != _current(site.call)
        ]

    def apply(self, source: str, args: InputPrecisionArgs, context: RewriteContext) -> str:
        """The source with one dot product at another precision."""
        if args.precision not in context.input_precisions:
            allowed = ", ".join(context.input_precisions)
            raise RewriteError(f"the task does not allow input_precision={args.precision!r} (allowed: {allowed})")
        module = parse(source)
        site = call_site(module, ("dot",), args.kernel, args.site)
        call = without_keyword(site.call, "allow_tf32")
        call = with_keyword(call, "input_precision", f'"{args.precision}"')
        return emit(replace(module, {site.call: call}), source)

    def explain(self, args: InputPrecisionArgs) -> str:
        """What the precision means."""
        return f"dot {args.site} of {args.kernel} takes its float32 operands as {args.precision}"


def _current(call: cst.Call) -> str | None:
    arg = keyword(call, "input_precision")
    return None if arg is None else getattr(arg.value, "raw_value", None)
