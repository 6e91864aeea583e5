"""rows_per_program and persistent_grid: one program does the work of several, in a loop."""

from __future__ import annotations

from typing import Literal

import libcst as cst

from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.cst_tools import Statement, body_of, code, emit, fresh_name, parse
from policy.rewrites.programs import (
    KernelEdit,
    Parameter,
    constant_name,
    grids,
    loop,
    program_ids,
    triton_name,
)
from policy.rewrites.triton_tools import aliases, kernel_named, kernels, launches

ROWS = (2, 4, 8)
PROGRAMS = (264, 528, 1056)


class RowsPerProgramArgs(RewriteArgs):
    """How many rows (or tiles) one program handles."""

    kernel: str
    rows: Literal[2, 4, 8, 16] = 4


class PersistentGridArgs(RewriteArgs):
    """How many programs share the whole work."""

    kernel: str
    programs: int = 528


class RowsPerProgram(Rewrite[RowsPerProgramArgs]):
    """One row per program -> ROWS_PER_PROGRAM consecutive rows per program, in a loop."""

    name = "rows_per_program"
    Args = RowsPerProgramArgs

    def candidates(self, source: str, context: RewriteContext) -> list[RowsPerProgramArgs]:
        """2, 4 and 8 rows for every kernel that maps one program to one row or tile."""
        return [RowsPerProgramArgs(kernel=name, rows=rows) for name in _single_axis(source) for rows in ROWS]

    def apply(self, source: str, args: RowsPerProgramArgs, context: RewriteContext) -> str:
        """The kernel's body in a loop over consecutive rows, its grid divided."""
        module = parse(source)
        rows = constant_name(module, "ROWS_PER_PROGRAM")
        count = fresh_name(module, "n_programs")
        pid = fresh_name(module, "pid_rows")
        known = aliases(module)
        header = f"for {{row}} in range({pid} * {rows}, {known.tl}.minimum({pid} * {rows} + {rows}, {count})):"
        grid = f"{triton_name(known)}.cdiv({{work}}, {rows})"
        return _looped(module, source, args.kernel, header, pid, (rows, args.rows), count, grid)

    def explain(self, args: RowsPerProgramArgs) -> str:
        """Why several."""
        return f"{args.kernel}: {args.rows} rows per program, so that starting programs costs less per row"


class PersistentGrid(Rewrite[PersistentGridArgs]):
    """One program per row -> a fixed number of programs that stride over all rows."""

    name = "persistent_grid"
    Args = PersistentGridArgs

    def candidates(self, source: str, context: RewriteContext) -> list[PersistentGridArgs]:
        """2, 4 and 8 programs per SM of a large GPU, for every kernel that maps one program to one row or tile."""
        return [PersistentGridArgs(kernel=name, programs=count) for name in _single_axis(source) for count in PROGRAMS]

    def apply(self, source: str, args: PersistentGridArgs, context: RewriteContext) -> str:
        """The kernel's body in a grid-stride loop, its grid capped."""
        if args.programs < 1:
            raise RewriteError("at least one program is needed")
        module = parse(source)
        programs = constant_name(module, "NUM_PROGRAMS")
        count = fresh_name(module, "n_programs")
        pid = fresh_name(module, "pid_first")
        header = f"for {{row}} in range({pid}, {count}, {programs}):"
        grid = f"min({{work}}, {programs})"
        return _looped(module, source, args.kernel, header, pid, (programs, args.programs), count, grid)

    def explain(self, args: PersistentGridArgs) -> str:
        """Why persistent."""
        return f"{args.kernel}: {args.programs} persistent programs stride over all rows: no wave tail, one start each"


def _single_axis(source: str) -> list[str]:
    module = parse(source)
    found = []
    for kernel in kernels(module):
        name = kernel.name.value
        if not launches(module, name):
            continue
        try:
            _program(module, kernel)
        except RewriteError:
            continue
        found.append(name)
    return found


def _program(module: cst.Module, kernel: cst.FunctionDef) -> tuple[str, list[Statement], list[Statement]]:
    """The program id's name, the statements before it and those after it."""
    ids = program_ids(kernel, aliases(module))
    if len(ids) != 1 or ids[0].axis != 0:
        raise RewriteError("the kernel does not use exactly one program id, of axis 0")
    if any(len(grid.axes) != 1 for grid in grids(module, kernel.name.value)):
        raise RewriteError("the grid has more than one axis")
    lines = list(body_of(kernel))
    at = lines.index(ids[0].statement)
    after = lines[at + 1 :]
    if not after:
        raise RewriteError("the kernel does nothing")
    if any(isinstance(line, cst.SimpleStatementLine) and _returns(line) for line in lines):
        raise RewriteError("the kernel returns early")
    return ids[0].name, lines[:at], after


def _returns(line: cst.SimpleStatementLine) -> bool:
    return any(isinstance(small, cst.Return) for small in line.body)


def _looped(
    module: cst.Module,
    source: str,
    name: str,
    header: str,
    pid: str,
    constant: tuple[str, int],
    count: str,
    grid: str,
) -> str:
    kernel = kernel_named(module, name)
    row, before, after = _program(module, kernel)
    known = aliases(module)
    first = cst.parse_statement(f"{pid} = {known.tl}.program_id(0)")
    works = [code(found.axes[0]) for found in grids(module, name)]
    edited = KernelEdit(
        module,
        kernel,
        [*before, first, loop(header.format(row=row), after)],
        axes=[[grid.format(work=work)] for work in works],
        added=[[Parameter(count, work), Parameter(constant[0], constant[0], constexpr=True)] for work in works],
        constant=constant,
    )
    return emit(edited.applied(), source)
