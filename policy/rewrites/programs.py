"""How a kernel's programs map to work: its program ids, its launches' grids, and what ties them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from policy.rewrites.base import RewriteError
from policy.rewrites.cst_tools import (
    Replacement,
    Statement,
    body_of,
    code,
    definitions,
    expression,
    find,
    fresh_name,
    has_star_arguments,
    integer,
    keyword_arg,
    replace,
    single_assignment,
    statements,
    with_keyword,
    with_parameter,
)
from policy.rewrites.triton_tools import (
    Aliases,
    Launch,
    aliases,
    grid_axes,
    launch_argument,
    launches,
    with_grid,
)


@dataclass(frozen=True)
class ProgramId:
    """`name = tl.program_id(axis)` at the top level of a kernel."""

    name: str
    axis: int
    statement: Statement


def program_ids(kernel: cst.FunctionDef, known: Aliases) -> list[ProgramId]:
    """The kernel's program ids. Raises RewriteError when one is used in any other way, or num_programs is."""
    found: list[ProgramId] = []
    for line in body_of(kernel):
        pair = single_assignment(line)
        if pair is None or not isinstance(pair[1], cst.Call) or known.language_name(pair[1].func) != "program_id":
            continue
        axis = integer(pair[1].args[0].value) if pair[1].args else None
        if axis is None:
            raise RewriteError("the axis of a program id is not a number")
        found.append(ProgramId(pair[0], axis, line))
    names = [known.language_name(call.func) for call in find(kernel.body, cst.Call)]
    if names.count("program_id") != len(found):
        raise RewriteError("a program id is used inside an expression")
    if "num_programs" in names:
        raise RewriteError("the kernel already depends on the number of programs")
    return found


@dataclass(frozen=True)
class Grid:
    """One launch with the axes of its grid and the node that spells them."""

    launch: Launch
    axes: list[cst.BaseExpression]
    spelled: cst.BaseExpression | None
    """The tuple assigned to the grid's name, when only this launch uses it; None when it is in the launch."""


def grids(module: cst.Module, kernel: str) -> list[Grid]:
    """Every launch of `kernel` with its grid. Raises RewriteError when there is none or one cannot be read."""
    found = launches(module, kernel)
    if not found:
        raise RewriteError(f"{kernel} is never launched")
    return [_grid(launch) for launch in found]


def _grid(launch: Launch) -> Grid:
    if has_star_arguments(launch.call):
        raise RewriteError(f"a launch of {launch.kernel} hides its arguments behind *")
    spelled: cst.BaseExpression | None = None
    grid = launch.grid
    if isinstance(grid, cst.Name) and launch.function is not None:
        values = definitions(launch.function).get(grid.value, [])
        uses = [name for name in find(launch.function.body, cst.Name) if name.value == grid.value]
        if len(values) == 1:
            grid = values[0]
            spelled = grid if len(uses) == 2 else None
    axes = grid_axes(grid)
    if axes is None:
        raise RewriteError(f"the grid of {launch.kernel} is not a tuple of expressions")
    return Grid(launch, axes, spelled)


def triton_name(known: Aliases) -> str:
    """A text that names the triton module. Raises RewriteError when it is not imported."""
    if not known.triton:
        raise RewriteError("the source does not import triton")
    return min(known.triton)


@dataclass(frozen=True)
class Parameter:
    """A parameter to add to a kernel and what its launches pass."""

    name: str
    value: str
    constexpr: bool = False


@dataclass
class KernelEdit:
    """A new kernel body with new parameters, new grids and a new module constant, put together in one pass."""

    module: cst.Module
    kernel: cst.FunctionDef
    body: Sequence[Statement]
    axes: Sequence[Sequence[str]] | None = None
    """For each launch, the texts of its new grid; None leaves the grids."""
    added: Sequence[Sequence[Parameter]] = ()
    """For each launch, the parameters with its own values (the names are the same for all)."""
    constant: tuple[str, int] | None = None
    following: str = ""
    """Text of functions to put behind the kernel."""
    changed: dict[str, str] | None = None
    """Launch argument (by kernel parameter) -> its new text, for every launch."""

    def applied(self) -> cst.Module:
        """The edited module."""
        known = aliases(self.module)
        new = self.kernel
        for parameter in self.added[0] if self.added else ():
            new = with_parameter(new, parameter.name, f"{known.tl}.constexpr" if parameter.constexpr else None)
        assert isinstance(new.body, cst.IndentedBlock)
        new = new.with_changes(body=new.body.with_changes(body=list(self.body)))
        edits: dict[cst.CSTNode, Replacement] = {self.kernel: self._surrounded(new)}
        for index, grid in enumerate(grids(self.module, self.kernel.name.value)):
            edits.update(self._launch_edits(index, grid))
        return replace(self.module, edits)

    def _surrounded(self, new: cst.FunctionDef) -> Replacement:
        parts: list[cst.CSTNode] = [new]
        if self.constant is not None:
            name, value = self.constant
            (line,) = statements(f"{name} = {value}")
            parts.insert(0, line.with_changes(leading_lines=self.kernel.leading_lines[:1]))
        parts += statements(self.following) if self.following else []
        return new if len(parts) == 1 else cst.FlattenSentinel(parts)

    def _launch_edits(self, index: int, grid: Grid) -> dict[cst.CSTNode, Replacement]:
        call = grid.launch.call
        edits: dict[cst.CSTNode, Replacement] = {}
        for name, text in (self.changed or {}).items():
            call = _with_argument(call, grid.launch, self.kernel, name, text)
        if self.axes is not None:
            tuple_text = (
                f"({', '.join(self.axes[index])},)"
                if len(self.axes[index]) == 1
                else (f"({', '.join(self.axes[index])})")
            )
            if grid.spelled is not None:
                edits[grid.spelled] = expression(tuple_text)
            else:
                call = with_grid(call, expression(tuple_text))
        for parameter in self.added[index] if self.added else ():
            call = with_keyword(call, parameter.name, parameter.value)
        if call is not grid.launch.call:
            edits[grid.launch.call] = call
        return edits


def _with_argument(call: cst.Call, launch: Launch, kernel: cst.FunctionDef, parameter: str, text: str) -> cst.Call:
    held = launch_argument(launch, kernel, parameter)
    if held is None:
        return call.with_changes(args=[*call.args, keyword_arg(parameter, expression(text))])
    args = [arg.with_changes(value=expression(text)) if arg is held else arg for arg in call.args]
    return call.with_changes(args=args)


def argument_text(launch: Launch, kernel: cst.FunctionDef, parameter: str) -> str:
    """The text a launch passes for a parameter. Raises RewriteError when it passes none."""
    held = launch_argument(launch, kernel, parameter)
    if held is None:
        raise RewriteError(f"a launch of {kernel.name.value} leaves {parameter} out")
    return code(held.value)


def constant_name(module: cst.Module, base: str) -> str:
    """A name for a new module constant that nothing uses yet."""
    return fresh_name(module, base)


def indented(lines: Sequence[Statement]) -> cst.IndentedBlock:
    """Statements as the block of a compound statement."""
    return cst.IndentedBlock(body=list(lines))


def loop(header: str, body: Sequence[Statement]) -> cst.For:
    """`header` (a `for …:` line) with a block of existing statements."""
    (made,) = statements(f"{header}\n    pass\n")
    assert isinstance(made, cst.For)
    return made.with_changes(body=indented(body))
