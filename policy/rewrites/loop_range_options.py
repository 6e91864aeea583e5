"""loop_range_options: pipelining, unrolling and flattening of single loops."""

from __future__ import annotations

from typing import Literal

import libcst as cst

from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.cst_tools import code, emit, expression, find, keyword, parse, replace, with_keyword
from policy.rewrites.triton_tools import Aliases, aliases, kernel_named, kernels

Option = Literal["num_stages", "loop_unroll_factor", "flatten", "disallow_acc_multi_buffer"]

_COUNTS: dict[Option, tuple[int, ...]] = {"num_stages": (2, 3, 4), "loop_unroll_factor": (2, 4)}
_WHY: dict[Option, str] = {
    "num_stages": "loads of later iterations are in flight while this one computes",
    "loop_unroll_factor": "fewer branches and more independent instructions per iteration",
    "flatten": "the nest becomes one loop, so that its inner prologue is pipelined too",
    "disallow_acc_multi_buffer": "one accumulator buffer leaves registers for other things",
}


class LoopRangeArgs(RewriteArgs):
    """Which loop gets which option of `tl.range`."""

    kernel: str
    loop: int
    """Index among the kernel's `range` and `tl.range` loops."""
    option: Option
    value: int
    """A count, or 1 to switch a flag on."""


class LoopRangeOptions(Rewrite[LoopRangeArgs]):
    """`range(…)` -> `tl.range(…, num_stages=3)` and the like."""

    name = "loop_range_options"
    Args = LoopRangeArgs

    def candidates(self, source: str, context: RewriteContext) -> list[LoopRangeArgs]:
        """Counts for every loop; `flatten` on nests, accumulator buffering on loops with `tl.dot`."""
        module = parse(source)
        known = aliases(module)
        found: list[LoopRangeArgs] = []
        for kernel in kernels(module):
            for index, loop in enumerate(_loops(kernel, known)):
                found += [
                    LoopRangeArgs(kernel=kernel.name.value, loop=index, option=option, value=value)
                    for option, value in _settings(loop, known)
                    if _current(loop, option) != _text(option, value)
                ]
        return found

    def apply(self, source: str, args: LoopRangeArgs, context: RewriteContext) -> str:
        """The source with one option set on one loop."""
        module = parse(source)
        known = aliases(module)
        loops = _loops(kernel_named(module, args.kernel), known)
        if not 0 <= args.loop < len(loops):
            raise RewriteError(f"kernel {args.kernel!r} has no range loop number {args.loop}")
        loop = loops[args.loop]
        if (args.option, args.value) not in _settings(loop, known):
            raise RewriteError(f"{args.option}={args.value} does not apply to loop {args.loop}")
        assert isinstance(loop.iter, cst.Call)
        call = loop.iter
        if known.language_name(call.func) is None:
            call = call.with_changes(func=expression(f"{known.tl}.range"))
        call = with_keyword(call, args.option, _text(args.option, args.value))
        return emit(replace(module, {loop.iter: call}), source)

    def explain(self, args: LoopRangeArgs) -> str:
        """What the option does."""
        setting = f"{args.option}={_text(args.option, args.value)}"
        return f"{setting} on loop {args.loop} of {args.kernel}: {_WHY[args.option]}"


def _loops(kernel: cst.FunctionDef, known: Aliases) -> list[cst.For]:
    return [loop for loop in find(kernel.body, cst.For) if _is_range(loop, known)]


def _is_range(loop: cst.For, known: Aliases) -> bool:
    if not isinstance(loop.iter, cst.Call):
        return False
    name = loop.iter.func
    plain = isinstance(name, cst.Name) and name.value == "range" and name.value not in known.members
    return plain or known.language_name(name) == "range"


def _settings(loop: cst.For, known: Aliases) -> list[tuple[Option, int]]:
    found: list[tuple[Option, int]] = [(option, n) for option, counts in _COUNTS.items() for n in counts]
    if any(_is_range(inner, known) for inner in find(loop.body, cst.For)):
        found.append(("flatten", 1))
    if any(known.language_name(call.func) == "dot" for call in find(loop.body, cst.Call)):
        found.append(("disallow_acc_multi_buffer", 1))
    return found


def _text(option: Option, value: int) -> str:
    return str(value) if option in _COUNTS else str(bool(value))


def _current(loop: cst.For, option: Option) -> str | None:
    arg = keyword(loop.iter, option) if isinstance(loop.iter, cst.Call) else None
    return None if arg is None else code(arg.value)
