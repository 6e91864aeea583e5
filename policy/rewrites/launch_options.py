"""launch_options: spell out a launch option that the compiler otherwise chooses, so that it can be tuned."""

from __future__ import annotations

from typing import Literal

import libcst as cst

from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.cst_tools import emit, find, has_star_arguments, keyword, parse, replace, with_keyword
from policy.rewrites.triton_tools import kernel_named, kernels, launches

Option = Literal["num_warps", "num_stages", "maxnreg"]

_VALUES: dict[Option, tuple[int, ...]] = {
    "num_warps": (2, 4, 8),
    "num_stages": (2, 3),
    "maxnreg": (64, 128),
}
_WHY: dict[Option, str] = {
    "num_warps": "threads per program",
    "num_stages": "iterations of the main loop whose loads are in flight",
    "maxnreg": "fewer registers per thread let more programs share a multiprocessor",
}


class LaunchOptionArgs(RewriteArgs):
    """Which option, with which first value."""

    kernel: str
    option: Option
    value: int


class LaunchOptions(Rewrite[LaunchOptionArgs]):
    """`kernel[grid](x)` -> `kernel[grid](x, num_warps=8)` where the launch does not say it yet.

    A launch that already names the option is left alone: its literal is a tunable, and the tuner's business.
    """

    name = "launch_options"
    Args = LaunchOptionArgs

    def candidates(self, source: str, context: RewriteContext) -> list[LaunchOptionArgs]:
        """Every option that no launch of a kernel names."""
        module = parse(source)
        return [
            LaunchOptionArgs(kernel=kernel.name.value, option=option, value=value)
            for kernel in kernels(module)
            for option, values in _VALUES.items()
            if _reason_against(module, kernel.name.value, option) is None
            for value in values
        ]

    def apply(self, source: str, args: LaunchOptionArgs, context: RewriteContext) -> str:
        """The source with the option on every launch of the kernel."""
        module = parse(source)
        reason = _reason_against(module, args.kernel, args.option)
        if reason is not None:
            raise RewriteError(reason)
        if args.value not in _VALUES[args.option]:
            raise RewriteError(f"{args.option} takes one of {_VALUES[args.option]}")
        edits: dict[cst.CSTNode, cst.CSTNode] = {
            launch.call: with_keyword(launch.call, args.option, str(args.value))
            for launch in launches(module, args.kernel)
        }
        return emit(replace(module, edits), source)

    def explain(self, args: LaunchOptionArgs) -> str:
        """What the option means."""
        return f"{args.kernel} is launched with {args.option}={args.value}: {_WHY[args.option]}"


def _reason_against(module: cst.Module, kernel: str, option: Option) -> str | None:
    calls = [launch.call for launch in launches(module, kernel)]
    function = kernel_named(module, kernel)
    if not calls:
        return f"{kernel} is never launched"
    if any(has_star_arguments(call) for call in calls):
        return f"{kernel} is launched with ** arguments"
    if any(keyword(call, option) is not None for call in calls):
        return f"a launch of {kernel} already names {option}: tune its value instead"
    if len(function.decorators) > 1:
        return f"{kernel} is autotuned: its launch options live in its configs"
    if option == "num_stages" and not find(function.body, cst.For):
        return f"{kernel} has no loop to pipeline"
    return None
