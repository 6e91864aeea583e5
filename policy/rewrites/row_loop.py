"""row_loop: a kernel that holds a whole row in one block walks over it in smaller blocks instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst

from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.cst_tools import (
    Statement,
    assigned_names,
    body_of,
    code,
    emit,
    expression,
    find,
    fresh_name,
    integer,
    names_in,
    parse,
    replace,
    single_assignment,
    statement,
    with_body,
)
from policy.rewrites.loops import NEUTRAL, check_masks, reduced, writes_memory
from policy.rewrites.programs import KernelEdit, argument_text, constant_name, grids, loop, triton_name
from policy.rewrites.triton_tools import Aliases, aliases, constexpr_names, kernel_named, kernels, launches

BLOCKS = (512, 2048)
_KINDS = ("sum", "max", "min")
_COMBINE = {"max": "maximum", "min": "minimum"}


class RowLoopArgs(RewriteArgs):
    """Which kernel, and the block it walks in."""

    kernel: str
    block: int = 1024


class RowLoop(Rewrite[RowLoopArgs]):
    """One block of next_power_of_2(row) elements -> a pass over smaller blocks for each reduction and store."""

    name = "row_loop"
    Args = RowLoopArgs
    exact = False

    def candidates(self, source: str, context: RewriteContext) -> list[RowLoopArgs]:
        """Two block sizes for every kernel whose one block is the row's next power of two."""
        found = []
        for kernel in kernels(parse(source)):
            args = RowLoopArgs(kernel=kernel.name.value, block=BLOCKS[0])
            try:
                self.apply(source, args, context)
            except RewriteError:
                continue
            found += [RowLoopArgs(kernel=kernel.name.value, block=block) for block in BLOCKS]
        return found

    def apply(self, source: str, args: RowLoopArgs, context: RewriteContext) -> str:
        """The kernel in passes; its launches pass a constant block."""
        if args.block < 16 or args.block & (args.block - 1):
            raise RewriteError(f"a block of {args.block} elements is no power of two of at least 16")
        module = parse(source)
        known = aliases(module)
        kernel = kernel_named(module, args.kernel)
        check_masks(kernel)
        row = _whole_row(module, kernel, known)
        passes = _Passes(row, known, fresh_name(module, "start"))
        lines = passes.of(row.lines)
        body = lines
        if isinstance(row.owner, cst.For):
            inner = with_body(row.owner, lines)
            body = [inner if line is row.owner else line for line in body_of(kernel)]
        constant = constant_name(module, row.size)
        edited = KernelEdit(module, kernel, body, changed={row.size: constant}, constant=(constant, args.block))
        return emit(edited.applied(), source)

    def explain(self, args: RowLoopArgs) -> str:
        """Why blocks."""
        return f"{args.kernel}: passes over blocks of {args.block}, so that long rows need few registers"


@dataclass(frozen=True)
class _Row:
    owner: cst.FunctionDef | cst.For
    lines: list[Statement]
    size: str
    """The constexpr parameter with the block's size."""
    bound: str
    """The parameter with the row's length."""


def _whole_row(module: cst.Module, kernel: cst.FunctionDef, known: Aliases) -> _Row:
    if not launches(module, kernel.name.value):
        raise RewriteError(f"{kernel.name.value} is never launched")
    owner: cst.FunctionDef | cst.For = kernel
    while True:
        lines = list(body_of(owner))
        for size in constexpr_names(kernel, known):
            columns = [name for line in lines if (name := _columns(line, size, known))]
            if len(columns) == 1:
                bound = _bound(module, kernel, lines, columns[0], size, known)
                return _Row(owner, lines, size, bound)
        inner = [line for line in lines if isinstance(line, cst.For)]
        if len(inner) != 1:
            raise RewriteError(f"{kernel.name.value} has no block that holds a whole row")
        owner = inner[0]


def _columns(line: Statement, size: str, known: Aliases) -> str | None:
    """`cols` of `cols = tl.arange(0, SIZE)`."""
    pair = single_assignment(line)
    if pair is None or not _is_arange(pair[1], size, known):
        return None
    return pair[0]


def _is_arange(node: cst.CSTNode, size: str, known: Aliases) -> bool:
    return (
        isinstance(node, cst.Call)
        and known.language_name(node.func) == "arange"
        and len(node.args) == 2
        and integer(node.args[0].value) == 0
        and code(node.args[1].value) == size
    )


def _bound(
    module: cst.Module, kernel: cst.FunctionDef, lines: Sequence[Statement], columns: str, size: str, known: Aliases
) -> str:
    """The parameter the columns are compared with, which every launch rounds up to get the block."""
    compared = {
        code(node.comparisons[0].comparator)
        for line in lines
        for node in find(line, cst.Comparison)
        if code(node.left) == columns and isinstance(node.comparisons[0].operator, cst.LessThan)
    }
    if len(compared) != 1:
        raise RewriteError(f"{columns} is not compared with one row length")
    bound = compared.pop()
    for grid in grids(module, kernel.name.value):
        length = argument_text(grid.launch, kernel, bound)
        if argument_text(grid.launch, kernel, size) != f"{triton_name(known)}.next_power_of_2({length})":
            raise RewriteError(f"{size} is not the next power of two of {bound}")
    return bound


@dataclass
class _Passes:
    """Turns straight-line code on one block into passes, each recomputing the block values it needs."""

    row: _Row
    known: Aliases
    start: str
    pending: list[Statement] = field(default_factory=list)
    blocky: set[str] = field(default_factory=set)

    def of(self, lines: Sequence[Statement]) -> list[Statement]:
        """The new statements, in order."""
        made: list[Statement] = []
        for line in [part for whole in lines for part in self._flat(whole)]:
            if not isinstance(line, cst.SimpleStatementLine):
                raise RewriteError("the kernel has blocks of its own")
            pair = single_assignment(line)
            if writes_memory(line, self.known):
                made += self._stored(line)
            elif pair is None:
                raise RewriteError(f"`{code(line).strip()}` is not a plain assignment")
            elif (kind := self._reduction(pair[1])) is not None:
                made += self._accumulated(pair[0], kind, pair[1])
                self.blocky.discard(pair[0])
            elif self._is_blocky(pair[1]):
                self._hold(pair[0], line)
            else:
                self.blocky.discard(pair[0])
                made.append(line)
        return made

    def _flat(self, line: Statement) -> list[Statement]:
        """A statement with nested reductions put before it, each under a name of its own."""
        pair = single_assignment(line)
        if pair is None or any(reduced(pair[1], kind, self.known) is not None for kind in _KINDS):
            return [line]
        before: list[Statement] = []
        edits = {}
        for call in find(pair[1], cst.Call):
            if any(reduced(call, kind, self.known) is not None for kind in _KINDS):
                name = f"{pair[0]}_part_{len(before)}"
                before.append(statement(f"{name} = {code(call)}"))
                edits[call] = cst.Name(name)
        return [*before, replace(line, edits)] if before else [line]

    def _is_blocky(self, node: cst.CSTNode) -> bool:
        arange = any(_is_arange(call, self.row.size, self.known) for call in find(node, cst.Call))
        return arange or bool(names_in(node) & self.blocky)

    def _reduction(self, node: cst.BaseExpression) -> str | None:
        for kind in _KINDS:
            value = reduced(node, kind, self.known)
            if value is not None and self._is_blocky(value):
                return kind
        return None

    def _hold(self, name: str, line: Statement) -> None:
        if name in names_in(single_assignment(line)[1]):  # type: ignore[index]
            raise RewriteError(f"{name} is updated in place")
        if any(name in assigned_names(held) for held in self.pending):
            raise RewriteError(f"{name} holds two block values")
        self.blocky.add(name)
        self.pending.append(line)

    def _slice(self, needed: set[str]) -> list[Statement]:
        """The held statements that `needed` names depend on, in order, on the block at `start`."""
        chosen: list[Statement] = []
        for line in reversed(self.pending):
            if assigned_names(line) & needed:
                chosen.append(line)
                needed |= names_in(line)
        return [self._shifted(line) for line in reversed(chosen)]

    def _shifted(self, line: Statement) -> Statement:
        edits = {
            call: expression(f"{self.start} + {code(call)}")
            for call in find(line, cst.Call)
            if _is_arange(call, self.row.size, self.known)
        }
        return replace(line, edits) if edits else line

    def _accumulated(self, name: str, kind: str, node: cst.BaseExpression) -> list[Statement]:
        value = reduced(node, kind, self.known)
        assert value is not None
        text = f"{self.known.tl}.{kind}({code(value)}, axis=0)"
        update = f"{name} += {text}" if kind == "sum" else f"{name} = {self.known.tl}.{_COMBINE[kind]}({name}, {text})"
        body = [*self._slice(set(names_in(value))), statement(update)]
        return [statement(f"{name} = {NEUTRAL[kind][0]}"), self._loop(body)]

    def _stored(self, line: Statement) -> list[Statement]:
        if not names_in(line) & self.blocky:
            return [line]
        return [self._loop([*self._slice(set(names_in(line))), line])]

    def _loop(self, body: Sequence[Statement]) -> cst.For:
        return loop(f"for {self.start} in range(0, {self.row.bound}, {self.row.size}):", body)
