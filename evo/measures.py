"""Behaviour descriptors: where in the archive a passed candidate belongs.

Measured where measuring is possible (bottleneck, occupancy and kernel count come from the profile), read from
the syntax tree otherwise (how programs map to work, how many passes, how memory is reached).
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Sequence

from evaluator.syntax import parse, statements
from evaluator.types import Evaluation, Profile


def cell_of(syntax: tuple[str, ...], evaluation: Evaluation) -> tuple[str, ...]:
    """The archive cell of a source with these `syntax_words`: one word for each of `DESCRIPTORS`, in their order."""
    profile = evaluation.profile
    if profile is None:
        return ("unknown", *syntax, "unknown", "unknown")
    return (profile.bottleneck or "unknown", *syntax, occupancy_tercile(profile), kernel_count(profile))


def syntax_words(source: str) -> tuple[str, ...]:
    """The descriptors that are read from the syntax tree, in order; equal for all configs of one structure."""
    kernels = kernels_of(parse(source))
    return program_mapping(kernels), passes(kernels), load_path(kernels)


WORDS: dict[str, tuple[str, ...]] = {
    "bottleneck": ("dram", "l2", "tensor", "issue", "latency", "launch"),
    "programs": ("1d", "2d", "grouped", "persistent"),
    "passes": ("whole", "single", "multi"),
    "loads": ("pointer", "block_pointer", "descriptor"),
    "occupancy": ("low", "middle", "high"),
    "kernels": ("1", "2", "3+"),
}
"""Descriptor -> what is measured of it; `unknown` stands in where nothing could be."""

DESCRIPTORS = tuple(WORDS)
CELLS = math.prod(len(words) for words in WORDS.values())
"""Cells of the archive in which everything is known. No task has kernels for all of them."""


def coverage(cells: Iterable[Sequence[str]]) -> float:
    """Share of all cells in which everything is known that are among `cells`."""
    known = [cell for cell in cells if all(map(_is_known, WORDS.values(), cell))]
    return len(known) / CELLS


def _is_known(words: Sequence[str], word: str) -> bool:
    return word in words


def kernels_of(tree: ast.AST) -> list[ast.FunctionDef]:
    """The functions that Triton compiles."""
    return [
        node
        for node in statements(tree)
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(mark) for mark in node.decorator_list)
    ]


def _calls(node: ast.AST) -> list[str]:
    return [_dotted(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)]


def _dotted(node: ast.expr) -> str:
    """`tl.load`; unparsing takes ten times as long."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            return f"{_dotted(value)}.{attr}"
    return ast.unparse(node)


def program_mapping(kernels: list[ast.FunctionDef]) -> str:
    """How programs map to work: `1d`, `2d`, `grouped` or `persistent`."""
    if _has_grid_stride(kernels):
        return "persistent"
    if any("GROUP" in name.id for kernel in kernels for name in ast.walk(kernel) if isinstance(name, ast.Name)):
        return "grouped"
    axes = {
        ast.unparse(call.args[0])
        for kernel in kernels
        for call in ast.walk(kernel)
        if isinstance(call, ast.Call) and call.args and _dotted(call.func).endswith("program_id")
    }
    return "1d" if len(axes) <= 1 else "2d"


def _has_grid_stride(kernels: list[ast.FunctionDef]) -> bool:
    """Whether a loop steps by the number of programs, asked of the grid or passed as a constant named so."""
    steps = [
        ast.unparse(loop.iter.args[2]).upper()
        for kernel in kernels
        for loop in statements(kernel)
        if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and len(loop.iter.args) == 3
    ]
    return any("PROGRAMS" in step or "NUM_SMS" in step for step in steps)


def passes(kernels: list[ast.FunctionDef]) -> str:
    """`whole` when nothing loops over loads, else `single` or `multi` by the loops that read memory."""
    counts = [sum(_reads(loop) for loop in statements(kernel) if isinstance(loop, ast.For)) for kernel in kernels]
    most = max(counts, default=0)
    return "whole" if most == 0 else "single" if most == 1 else "multi"


def _reads(node: ast.AST) -> bool:
    return any(name.endswith(".load") for name in _calls(node))


def load_path(kernels: list[ast.FunctionDef]) -> str:
    """How memory is reached: `pointer`, `block_pointer` or `descriptor`."""
    calls = [name for kernel in kernels for name in _calls(kernel)]
    if any("tensor_descriptor" in name for name in calls):
        return "descriptor"
    return "block_pointer" if any(name.endswith("make_block_ptr") for name in calls) else "pointer"


def occupancy_tercile(profile: Profile) -> str:
    """`low`, `middle` or `high` by the time-weighted occupancy of all launches."""
    launches = [launch for launches in profile.launches.values() for launch in launches]
    total = sum(launch.latency_ms for launch in launches)
    if not launches or total <= 0:
        return "unknown"
    mean = sum(launch.occupancy * launch.latency_ms for launch in launches) / total
    return "low" if mean < 1 / 3 else "middle" if mean < 2 / 3 else "high"


def kernel_count(profile: Profile) -> str:
    """Kernels launched per call: `1`, `2` or `3+`."""
    most = max((len(launches) for launches in profile.launches.values()), default=0)
    return str(most) if most < 3 else "3+"
