"""accumulate_blockwise: a looped reduction keeps a block of partial results and reduces once, after the loop."""

from __future__ import annotations

import libcst as cst

from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.cst_tools import Statement, emit, expression, parse, replace, statement
from policy.rewrites.loops import Accumulation, Block, RowLoop, accumulation, initial, is_neutral, loop_block, used_in
from policy.rewrites.triton_tools import Aliases, aliases, kernel_named, kernels


class AccumulateBlockwiseArgs(RewriteArgs):
    """Which accumulator."""

    kernel: str
    accumulator: str


class AccumulateBlockwise(Rewrite[AccumulateBlockwiseArgs]):
    """`acc += tl.sum(x)` in a loop -> `acc += x` on a block, one `tl.sum` behind the loop."""

    name = "accumulate_blockwise"
    Args = AccumulateBlockwiseArgs
    exact = False

    def candidates(self, source: str, context: RewriteContext) -> list[AccumulateBlockwiseArgs]:
        """Every sum or maximum that a loop reduces in each iteration."""
        module = parse(source)
        known = aliases(module)
        found = []
        for kernel in kernels(module):
            try:
                block = loop_block(kernel, known)
            except RewriteError:
                continue
            for loop in block.loops:
                found += [
                    AccumulateBlockwiseArgs(kernel=kernel.name.value, accumulator=held.name)
                    for line in loop.body
                    if (held := accumulation(line, known)) is not None and _start(block, loop, held) is not None
                ]
        return found

    def apply(self, source: str, args: AccumulateBlockwiseArgs, context: RewriteContext) -> str:
        """The source with one accumulator widened to a block."""
        module = parse(source)
        known = aliases(module)
        kernel = kernel_named(module, args.kernel)
        block = loop_block(kernel, known)
        for loop in block.loops:
            for line in loop.body:
                held = accumulation(line, known)
                start = _start(block, loop, held) if held and held.name == args.accumulator else None
                if held and start is not None:
                    return emit(_widened(module, loop, held, start, known), source)
        raise RewriteError(f"{args.kernel} has no looped reduction named {args.accumulator!r}")

    def explain(self, args: AccumulateBlockwiseArgs) -> str:
        """Why blockwise."""
        return f"{args.accumulator} of {args.kernel} is reduced across lanes once, not in every iteration"


def _start(block: Block, loop: RowLoop, held: Accumulation) -> Statement | None:
    """The neutral start of an accumulator that the loop uses for nothing else; None when there is none."""
    start = initial(block.lines, loop.node, held.name)
    if start is None or not is_neutral(start[1], held.kind) or used_in(loop.body, held.name, but=[held.line]):
        return None
    at, end = block.lines.index(start[0]), block.lines.index(loop.node)
    return None if used_in(block.lines[at + 1 : end], held.name) else start[0]


_STARTS = {"sum": "0.0", "max": '-float("inf")', "min": 'float("inf")'}
_COMBINE = {"max": "maximum", "min": "minimum"}


def _widened(module: cst.Module, loop: RowLoop, held: Accumulation, start: Statement, known: Aliases) -> cst.Module:
    name, tl = held.name, known.tl
    fill = statement(f"{name} = {tl}.full(({loop.block},), {_STARTS[held.kind]}, dtype={tl}.float32)")
    after = statement(f"{name} = {tl}.{held.kind}({name}, axis=0)")
    assert isinstance(held.line, cst.SimpleStatementLine)
    (small,) = held.line.body
    value = held.value.with_changes(lpar=[], rpar=[]) if held.value.lpar else held.value
    new: cst.BaseSmallStatement
    if isinstance(small, cst.AugAssign):
        new = small.with_changes(value=value)
    else:
        call = expression(f"{tl}.{_COMBINE[held.kind]}({name}, 0)")
        assert isinstance(call, cst.Call)
        call = call.with_changes(args=[call.args[0], call.args[1].with_changes(value=held.value)])
        new = cst.Assign(targets=[cst.AssignTarget(cst.Name(name))], value=call)
    inner = replace(loop.node, {held.line: held.line.with_changes(body=[new])})
    return replace(module, {start: fill, loop.node: cst.FlattenSentinel([inner, after])})
