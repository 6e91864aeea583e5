"""whole_row: a loop over the blocks of a row becomes one block that holds the whole row."""

from __future__ import annotations

import libcst as cst

from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.cst_tools import (
    Statement,
    body_of,
    code,
    emit,
    expression,
    find,
    integer,
    keyword,
    names_in,
    parse,
    replace,
    single_assignment,
    substitute,
    with_body,
)
from policy.rewrites.loops import (
    Accumulation,
    Block,
    accumulation,
    check_masks,
    initial,
    is_neutral,
    loop_block,
    used_in,
    without_repetitions,
)
from policy.rewrites.programs import KernelEdit, argument_text, grids, triton_name
from policy.rewrites.triton_tools import Aliases, aliases, kernel_named, kernels, launches

LONGEST = 32768
"""Rows beyond this do not fit into the registers of one program."""
ELEMENTS_PER_THREAD = 64
"""More than this and registers spill (a thread has 255), and the compiler takes many seconds to find out."""


class WholeRowArgs(RewriteArgs):
    """Which kernel."""

    kernel: str


class WholeRow(Rewrite[WholeRowArgs]):
    """Loops over the blocks of a row -> one block of next_power_of_2(row) elements, each loaded once."""

    name = "whole_row"
    Args = WholeRowArgs
    exact = False

    def candidates(self, source: str, context: RewriteContext) -> list[WholeRowArgs]:
        """Every kernel whose loops all run over the same blocks, for rows that fit into registers."""
        found = []
        for kernel in kernels(parse(source)):
            args = WholeRowArgs(kernel=kernel.name.value)
            try:
                self.apply(source, args, context)
            except RewriteError:
                continue
            found.append(args)
        return found

    def apply(self, source: str, args: WholeRowArgs, context: RewriteContext) -> str:
        """The kernel without its loops; its launches pass the row's next power of two as the block."""
        if _longest(context) > LONGEST:
            raise RewriteError(f"rows of {_longest(context)} elements do not fit into registers")
        module = parse(source)
        kernel = kernel_named(module, args.kernel)
        if not launches(module, args.kernel):
            raise RewriteError(f"{args.kernel} is never launched")
        known = aliases(module)
        check_masks(kernel)
        block = loop_block(kernel, known)
        if len({found.over for found in block.loops}) != 1:
            raise RewriteError("the loops run over different blocks")
        bound, size = block.loops[0].over
        if any(size in names_in(line) for line in block.lines if line not in [found.node for found in block.loops]):
            raise RewriteError(f"{size} is used outside of the loops")
        lines = without_repetitions(_straight(block, known), known)
        texts = {argument_text(grid.launch, kernel, bound) for grid in grids(module, args.kernel)}
        if len(texts) != 1:
            raise RewriteError("launches pass different row lengths")
        rows = texts.pop()
        body = lines if block.owner is kernel else _rebuilt(kernel, block, lines)
        changed = {size: f"{triton_name(known)}.next_power_of_2({rows})", **_more_warps(module, args.kernel, context)}
        edited = KernelEdit(module, kernel, body, changed=changed).applied()
        return emit(_without_unused_constant(edited, size), source)

    def explain(self, args: WholeRowArgs) -> str:
        """Why whole."""
        return f"{args.kernel}: the whole row in one block, read from memory once and kept in registers"


def _longest(context: RewriteContext) -> int:
    sizes = [value for params in context.shape_params for value in params.values() if isinstance(value, int)]
    return max(sizes, default=0)


def _more_warps(module: cst.Module, kernel: str, context: RewriteContext) -> dict[str, str]:
    """Enough warps that a thread holds few elements of the longest row; none where the launch computes them."""
    wanted = min(16, max(4, 1 << (_longest(context) // (32 * ELEMENTS_PER_THREAD) - 1).bit_length()))
    held = [keyword(grid.launch.call, "num_warps") for grid in grids(module, kernel)]
    values = [4 if arg is None else integer(arg.value) for arg in held]
    fewer = all(value is not None and value < wanted for value in values)
    return {"num_warps": str(wanted)} if fewer else {}


def _rebuilt(kernel: cst.FunctionDef, block: Block, lines: list[Statement]) -> list[Statement]:
    assert isinstance(block.owner, cst.For)
    inner = with_body(block.owner, lines)
    return [inner if line is block.owner else line for line in body_of(kernel)]


def _straight(block: Block, known: Aliases) -> list[Statement]:
    """The block's statements with every loop replaced by its body at start 0, accumulators folded."""
    loops = {id(found.node): found for found in block.loops}
    lines: list[Statement] = []
    dropped: set[int] = set()
    for line in block.lines:
        found = loops.get(id(line))
        if found is None:
            lines.append(line)
            continue
        for inner in found.body:
            if isinstance(inner, cst.For | cst.While | cst.If):
                raise RewriteError("a loop over the row holds another block")
            folded = accumulation(inner, known)
            start = initial(block.lines, found.node, folded.name) if folded else None
            if folded and start and is_neutral(start[1], folded.kind):
                dropped.add(id(start[0]))
            elif folded:
                raise RewriteError(f"{folded.name} does not start from a neutral value")
            lines.append(_at_zero(_folded(folded, known) if folded else inner, found.var))
        if used_in([other for other in block.lines if other is not line], found.var) and _reads(block, found.var):
            raise RewriteError(f"{found.var} is used outside of its loop")
    return [line for line in lines if id(line) not in dropped]


def _reads(block: Block, name: str) -> bool:
    own = [found.node for found in block.loops if found.var == name]
    return any(name in names_in(line) for line in block.lines if line not in own)


def _folded(held: Accumulation, known: Aliases) -> Statement:
    made = cst.parse_statement(f"{held.name} = {known.tl}.{held.kind}({code(held.value)}, axis=0)")
    assert isinstance(held.line, cst.SimpleStatementLine)
    assert isinstance(made, cst.SimpleStatementLine)
    return made.with_changes(leading_lines=held.line.leading_lines, trailing_whitespace=held.line.trailing_whitespace)


def _at_zero(line: Statement, var: str) -> Statement:
    """A statement with the loop variable at 0; `0 + x` becomes `x`."""
    edits = {}
    for node in find(line, cst.BinaryOperation):
        if isinstance(node.operator, cst.Add):
            if code(node.left) == var:
                edits[node] = node.right
            elif code(node.right) == var:
                edits[node] = node.left
    line = replace(line, edits)
    return substitute(line, {var: expression("0")}) if var in names_in(line) else line


def _without_unused_constant(module: cst.Module, name: str) -> cst.Module:
    """The module without the constant `name = …` when nothing reads it any more."""
    uses = [node for node in find(module, cst.Name) if node.value == name]
    for line in module.body:
        pair = single_assignment(line)
        if pair is not None and pair[0] == name:
            reading = [node for node in uses if not _is_target(node, line)]
            functions = [node for node in find(module, cst.FunctionDef) if _binds(node, name)]
            inside = {id(node) for function in functions for node in find(function, cst.Name)}
            keywords = {id(arg.keyword) for arg in find(module, cst.Arg) if arg.keyword is not None}
            if all(id(node) in inside or id(node) in keywords for node in reading):
                return replace(module, {line: cst.RemoveFromParent()})
    return module


def _is_target(node: cst.Name, line: cst.CSTNode) -> bool:
    return any(inner is node for inner in find(line, cst.Name))


def _binds(function: cst.FunctionDef, name: str) -> bool:
    return any(param.name.value == name for param in function.params.params)
