"""grouped_order: tiles are visited in groups of rows, so that neighbours in time share operands in L2."""

from __future__ import annotations

from typing import Literal

import libcst as cst

from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.cst_tools import Statement, body_of, code, emit, find, fresh_name, parse, statements
from policy.rewrites.programs import KernelEdit, Parameter, ProgramId, constant_name, grids, program_ids
from policy.rewrites.triton_tools import aliases, kernel_named, kernels, launches

GROUPS = (4, 8)


class GroupedOrderArgs(RewriteArgs):
    """How many tile rows form a group."""

    kernel: str
    group: Literal[2, 4, 8, 16] = 8


class GroupedOrder(Rewrite[GroupedOrderArgs]):
    """A two-dimensional grid of tiles -> a one-dimensional one in grouped order."""

    name = "grouped_order"
    Args = GroupedOrderArgs

    def candidates(self, source: str, context: RewriteContext) -> list[GroupedOrderArgs]:
        """Groups of 4 and 8 for every tile product on a two-dimensional grid."""
        module = parse(source)
        return [
            GroupedOrderArgs(kernel=kernel.name.value, group=group)
            for kernel in kernels(module)
            if _applies(module, kernel)
            for group in GROUPS
        ]

    def apply(self, source: str, args: GroupedOrderArgs, context: RewriteContext) -> str:
        """The kernel with its two program ids computed from one."""
        module = parse(source)
        kernel = kernel_named(module, args.kernel)
        first, second = _pair(module, kernel)
        known = aliases(module)
        group = constant_name(module, "GROUP_M")
        names = {
            name: fresh_name(module, name) for name in ("n_tiles_m", "n_tiles_n", "pid", "group_first", "in_group")
        }
        size = fresh_name(module, "group_rows")
        text = (
            f"{names['pid']} = {known.tl}.program_id(0)\n"
            f"{names['group_first']} = {names['pid']} // ({group} * {names['n_tiles_n']}) * {group}\n"
            f"{names['in_group']} = {names['pid']} % ({group} * {names['n_tiles_n']})\n"
            f"{size} = {known.tl}.minimum({names['n_tiles_m']} - {names['group_first']}, {group})\n"
            f"{first.name} = {names['group_first']} + {names['in_group']} % {size}\n"
            f"{second.name} = {names['in_group']} // {size}\n"
        )
        body: list[Statement] = []
        for line in body_of(kernel):
            if line is first.statement:
                body += statements(text)
            elif line is not second.statement:
                body.append(line)
        found = [[code(axis) for axis in grid.axes] for grid in grids(module, args.kernel)]
        edited = KernelEdit(
            module,
            kernel,
            body,
            axes=[[f"({rows}) * ({columns})"] for rows, columns in found],
            added=[
                [
                    Parameter(names["n_tiles_m"], rows),
                    Parameter(names["n_tiles_n"], columns),
                    Parameter(group, group, constexpr=True),
                ]
                for rows, columns in found
            ],
            constant=(group, args.group),
        )
        return emit(edited.applied(), source)

    def explain(self, args: GroupedOrderArgs) -> str:
        """Why grouped."""
        return f"{args.kernel}: tiles in groups of {args.group} rows, so that running programs share operands in L2"


def _applies(module: cst.Module, kernel: cst.FunctionDef) -> bool:
    known = aliases(module)
    has_dot = any(known.language_name(call.func) == "dot" for call in find(kernel.body, cst.Call))
    if not has_dot or not launches(module, kernel.name.value):
        return False
    try:
        _pair(module, kernel)
    except RewriteError:
        return False
    return True


def _pair(module: cst.Module, kernel: cst.FunctionDef) -> tuple[ProgramId, ProgramId]:
    """The ids of axis 0 and axis 1, which must be the kernel's only ones and stand next to each other."""
    ids = sorted(program_ids(kernel, aliases(module)), key=lambda found: found.axis)
    if [found.axis for found in ids] != [0, 1]:
        raise RewriteError("the kernel does not use the program ids of axes 0 and 1 alone")
    lines = list(body_of(kernel))
    if abs(lines.index(ids[0].statement) - lines.index(ids[1].statement)) != 1:
        raise RewriteError("something stands between the two program ids")
    if any(len(grid.axes) != 2 for grid in grids(module, kernel.name.value)):
        raise RewriteError("the grid does not have two axes")
    return ids[0], ids[1]
