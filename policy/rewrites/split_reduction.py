"""split_reduction: several programs share one long row, and a second kernel adds up what they found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import libcst as cst

from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.cst_tools import (
    Statement,
    body_of,
    code,
    emit,
    fresh_name,
    names_in,
    parent_map,
    parse,
    replace,
    statement,
    statement_of,
    statements,
)
from policy.rewrites.loops import RowLoop, accumulation, carried, initial, is_neutral, row_loop, used_in
from policy.rewrites.programs import (
    KernelEdit,
    Parameter,
    argument_text,
    constant_name,
    grids,
    loop,
    program_ids,
)
from policy.rewrites.triton_tools import Aliases, aliases, kernel_named, kernels, launches

SPLITS = (4, 16)


class SplitReductionArgs(RewriteArgs):
    """How many programs share a row."""

    kernel: str
    splits: Literal[2, 4, 8, 16, 32] = 8


@dataclass(frozen=True)
class _Shape:
    row: str
    loop: RowLoop
    start: Statement
    accumulator: str
    kind: str
    store: Statement
    pointer: str
    """The output's parameter."""


class SplitReduction(Rewrite[SplitReductionArgs]):
    """One program per row reduction -> SPLIT programs per row and a kernel that combines their partial results."""

    name = "split_reduction"
    Args = SplitReductionArgs
    exact = False

    def candidates(self, source: str, context: RewriteContext) -> list[SplitReductionArgs]:
        """4 and 16 programs for every kernel that reduces a row in one loop and stores the result."""
        module = parse(source)
        found = []
        for kernel in kernels(module):
            try:
                _shape(module, kernel)
            except RewriteError:
                continue
            found += [SplitReductionArgs(kernel=kernel.name.value, splits=splits) for splits in SPLITS]
        return found

    def apply(self, source: str, args: SplitReductionArgs, context: RewriteContext) -> str:
        """The kernel over a second grid axis, a combining kernel behind it, and its launch."""
        module = parse(source)
        known = aliases(module)
        kernel = kernel_named(module, args.kernel)
        shape = _shape(module, kernel)
        split = constant_name(module, "SPLIT")
        part = fresh_name(module, "part")
        combine = fresh_name(module, f"{args.kernel}_combine")
        (grid,) = grids(module, args.kernel)
        body = _partial_body(kernel, shape, split, part, known)
        rows = code(grid.axes[0])
        edited = KernelEdit(
            module,
            kernel,
            body,
            axes=[[rows, split]],
            added=[[Parameter(split, split, constexpr=True)]],
            constant=(split, args.splits),
            following=_combining(combine, shape, known),
            changed={shape.pointer: "partial"},
        ).applied()
        out = argument_text(grid.launch, kernel, shape.pointer)
        return emit(_with_second_launch(edited, args.kernel, combine, rows, out, split), source)

    def explain(self, args: SplitReductionArgs) -> str:
        """Why split."""
        return f"{args.kernel}: {args.splits} programs share each row, so that few long rows fill the whole GPU"


def _shape(module: cst.Module, kernel: cst.FunctionDef) -> _Shape:
    known = aliases(module)
    ids = program_ids(kernel, known)
    if len(ids) != 1 or ids[0].axis != 0 or len(launches(module, kernel.name.value)) != 1:
        raise RewriteError("the kernel does not map one program to one row in one launch")
    (grid,) = grids(module, kernel.name.value)
    if len(grid.axes) != 1 or "partial" in names_in(module):
        raise RewriteError("the grid has more than one axis")
    lines = list(body_of(kernel))
    loops = [held for line in lines if (held := row_loop(line, kernel, known)) is not None]
    if len(loops) != 1 or lines[-1] is loops[0].node or lines[-2] is not loops[0].node:
        raise RewriteError("the kernel is not one loop followed by one store")
    sums = [found for line in loops[0].body if (found := accumulation(line, known)) is not None]
    if len(sums) != 1 or used_in(loops[0].body, sums[0].name, but=[sums[0].line]):
        raise RewriteError("the loop does not keep exactly one reduction")
    if carried(loops[0].body, but=[sums[0].line]):
        raise RewriteError("the loop carries more than its reduction from one block to the next")
    start = initial(lines, loops[0].node, sums[0].name)
    if start is None or not is_neutral(start[1], sums[0].kind):
        raise RewriteError("the reduction does not start from a neutral value")
    pointer = _stored_to(lines[-1], ids[0].name, sums[0].name, known)
    return _Shape(ids[0].name, loops[0], start[0], sums[0].name, sums[0].kind, lines[-1], pointer)


def _stored_to(line: Statement, row: str, accumulator: str, known: Aliases) -> str:
    """`out_ptr` of `tl.store(out_ptr + row, acc)`."""
    if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 and isinstance(line.body[0], cst.Expr):
        call = line.body[0].value
        if isinstance(call, cst.Call) and known.language_name(call.func) == "store" and len(call.args) == 2:
            target, value = call.args[0].value, call.args[1].value
            plain = (
                isinstance(target, cst.BinaryOperation)
                and isinstance(target.operator, cst.Add)
                and isinstance(target.left, cst.Name)
                and code(target.right) == row
            )
            if plain and code(value).split(".to(")[0] == accumulator:
                return code(target.left)  # type: ignore[attr-defined]
    raise RewriteError("the kernel does not end with a store of the reduction to out + row")


def _partial_body(kernel: cst.FunctionDef, shape: _Shape, split: str, part: str, known: Aliases) -> list[Statement]:
    var, bound, block = shape.loop.var, shape.loop.bound, shape.loop.block
    header = f"for {var} in range({part} * {block}, {bound}, {block} * {split}):"
    body: list[Statement] = []
    for line in body_of(kernel):
        if line is shape.loop.node:
            body.append(loop(header, shape.loop.body))
        elif line is shape.store:
            body.append(
                statement(f"{known.tl}.store({shape.pointer} + {shape.row} * {split} + {part}, {shape.accumulator})")
            )
        else:
            body.append(line)
            if f"{shape.row} = " in code(line) and "program_id" in code(line):
                body.append(statement(f"{part} = {known.tl}.program_id(1)"))
    return body


def _combining(name: str, shape: _Shape, known: Aliases) -> str:
    tl, jit = known.tl, f"{min(known.triton)}.jit" if known.triton else min(known.jit)
    return (
        f"\n\n@{jit}\n"
        f"def {name}(partial_ptr, out_ptr, SPLIT: {tl}.constexpr):\n"
        f"    row = {tl}.program_id(0)\n"
        f"    parts = {tl}.load(partial_ptr + row * SPLIT + {tl}.arange(0, SPLIT))\n"
        f"    result = {tl}.{shape.kind}(parts, axis=0)\n"
        f"    {tl}.store(out_ptr + row, result.to(out_ptr.dtype.element_ty))\n"
    )


def _with_second_launch(module: cst.Module, kernel: str, combine: str, rows: str, out: str, split: str) -> cst.Module:
    (grid,) = grids(module, kernel)
    line = statement_of(grid.launch.call, parent_map(module))
    if line is None:
        raise RewriteError("the launch is not a statement")
    (allocation,) = statements(f"partial = torch.empty(({rows}, {split}), dtype=torch.float32, device={out}.device)")
    (second,) = statements(f"{combine}[({rows},)](partial, {out}, SPLIT={split}, num_warps=1)")
    return replace(module, {line: cst.FlattenSentinel([allocation, line, second])})
