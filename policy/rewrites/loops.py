"""Loops over a row in blocks: where they are, what they accumulate, and what may be merged or unrolled away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from policy.rewrites.base import RewriteError
from policy.rewrites.cst_tools import (
    Statement,
    argument,
    assigned_names,
    body_of,
    code,
    find,
    integer,
    names_in,
    single_assignment,
)
from policy.rewrites.triton_tools import Aliases, constexpr_names


@dataclass(frozen=True)
class RowLoop:
    """`for var in range(0, bound, block):` at the top level of a kernel or of a loop over rows."""

    node: cst.For
    var: str
    bound: str
    block: str

    @property
    def body(self) -> list[Statement]:
        """The statements of the loop."""
        return list(body_of(self.node))

    @property
    def over(self) -> tuple[str, str]:
        """What two loops must share to run over the same blocks."""
        return self.bound, self.block


def row_loop(node: cst.CSTNode, kernel: cst.FunctionDef, known: Aliases) -> RowLoop | None:
    """A statement as a loop over blocks of a row; None when it is none."""
    if not isinstance(node, cst.For) or node.orelse is not None or not isinstance(node.target, cst.Name):
        return None
    call = node.iter
    if not isinstance(call, cst.Call) or len(call.args) < 3:
        return None
    if code(call.func) != "range" and known.language_name(call.func) != "range":
        return None
    start, bound, block = (arg.value for arg in call.args[:3])
    plain = all(arg.keyword is None and not arg.star for arg in call.args[:3])
    if not plain or integer(start) != 0 or not isinstance(bound, cst.Name) or not isinstance(block, cst.Name):
        return None
    if block.value not in constexpr_names(kernel, known):
        return None
    return RowLoop(node, node.target.value, bound.value, block.value)


@dataclass(frozen=True)
class Block:
    """A list of statements that holds row loops: the kernel's body, or that of a loop over rows around it."""

    owner: cst.FunctionDef | cst.For
    lines: list[Statement]
    loops: list[RowLoop]


def loop_block(kernel: cst.FunctionDef, known: Aliases) -> Block:
    """The outermost block with row loops. Raises RewriteError when there is none."""
    owner: cst.FunctionDef | cst.For = kernel
    while True:
        lines = list(body_of(owner))
        loops = [found for line in lines if (found := row_loop(line, kernel, known)) is not None]
        if loops:
            return Block(owner, lines, loops)
        inner = [line for line in lines if isinstance(line, cst.For)]
        if len(inner) != 1:
            raise RewriteError(f"{kernel.name.value} has no loop over the blocks of a row")
        owner = inner[0]


@dataclass(frozen=True)
class Accumulation:
    """`acc += tl.sum(value, axis=0)` or `acc = tl.maximum(acc, tl.max(value, axis=0))` in a loop."""

    line: Statement
    name: str
    kind: str
    """`sum`, `max` or `min`."""
    value: cst.BaseExpression


_PAIRS = {"maximum": "max", "minimum": "min"}


def accumulation(line: Statement, known: Aliases) -> Accumulation | None:
    """A statement as an accumulation of a reduction over a one-dimensional block; None when it is none."""
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return None
    small = line.body[0]
    if isinstance(small, cst.AugAssign) and isinstance(small.operator, cst.AddAssign):
        value = reduced(small.value, "sum", known)
        if value is not None and isinstance(small.target, cst.Name):
            return Accumulation(line, small.target.value, "sum", value)
    pair = single_assignment(line)
    if pair is None:
        return None
    name, right = pair
    if isinstance(right, cst.Call) and len(right.args) == 2:
        combine = _PAIRS.get(known.language_name(right.func) or "")
        if combine and code(right.args[0].value) == name:
            value = reduced(right.args[1].value, combine, known)
            if value is not None:
                return Accumulation(line, name, combine, value)
    return None


def reduced(node: cst.BaseExpression, kind: str, known: Aliases) -> cst.BaseExpression | None:
    """`value` of `tl.<kind>(value, axis=0)` (or without axis); None for anything else."""
    if not isinstance(node, cst.Call) or known.language_name(node.func) != kind or not node.args:
        return None
    axis = argument(node, "axis", 1)
    if len(node.args) > 2 or (len(node.args) == 2 and (axis is None or integer(axis.value) != 0)):
        return None
    return node.args[0].value


def initial(lines: Sequence[Statement], before: Statement, name: str) -> tuple[Statement, cst.BaseExpression] | None:
    """The last plain assignment of `name` in `lines` above `before`; None when there is none or it is not plain."""
    found: tuple[Statement, cst.BaseExpression] | None = None
    for line in lines:
        if line is before:
            break
        pair = single_assignment(line)
        if pair is not None and pair[0] == name and isinstance(line, cst.SimpleStatementLine):
            found = (line, pair[1])
        elif name in assigned_names(line):
            found = None
    return found


NEUTRAL = {"sum": ("0.0", "0"), "max": ('-float("inf")', "-float('inf')"), "min": ('float("inf")', "float('inf')")}


def is_neutral(node: cst.BaseExpression, kind: str) -> bool:
    """Whether an expression is the value that changes nothing for a kind of accumulation."""
    return code(node) in NEUTRAL[kind]


def used_in(lines: Sequence[Statement], name: str, but: Sequence[Statement] = ()) -> bool:
    """Whether a name occurs in any of the statements, `but` left out."""
    return any(name in names_in(line) for line in lines if line not in but)


def carried(lines: Sequence[Statement], but: Sequence[Statement] = ()) -> frozenset[str]:
    """Names that a loop body reads before it binds them, and so carries from iteration to iteration."""
    bound = frozenset().union(*(assigned_names(line) for line in lines if line not in but))
    found: set[str] = set()
    seen: set[str] = set()
    for line in lines:
        if line in but:
            continue
        pair = single_assignment(line)
        read = names_in(line if pair is None else pair[1])
        found |= (read & bound) - seen
        seen |= {pair[0]} if pair is not None else set()
    return frozenset(found)


def check_masks(kernel: cst.FunctionDef) -> None:
    """Raises RewriteError where a mask was dropped for one block size, which another block would not satisfy."""
    for choice in find(kernel.body, cst.IfExp):
        if "None" in (code(choice.body), code(choice.orelse)):
            raise RewriteError(f"{kernel.name.value} has accesses without masks that hold for its present block only")


def writes_memory(line: cst.CSTNode, known: Aliases) -> bool:
    """Whether a statement stores or updates memory."""
    names = [known.language_name(call.func) or "" for call in find(line, cst.Call)]
    return any(name == "store" or name.startswith("atomic_") for name in names)


def reads_memory(line: cst.CSTNode, known: Aliases) -> bool:
    """Whether a statement loads from memory."""
    return any(known.language_name(call.func) == "load" for call in find(line, cst.Call))


def without_repetitions(lines: Sequence[Statement], known: Aliases) -> list[Statement]:
    """The statements without plain assignments that compute again what their name already holds."""
    kept: list[Statement] = []
    for line in lines:
        pair = single_assignment(line)
        if pair is None or not _already(kept, pair[0], pair[1], known):
            kept.append(line)
    return kept


def _already(kept: Sequence[Statement], name: str, value: cst.BaseExpression, known: Aliases) -> bool:
    text, inputs = code(value), names_in(value)
    for line in reversed(kept):
        pair = single_assignment(line)
        if pair is not None and pair[0] == name:
            return code(pair[1]) == text and name not in inputs
        if assigned_names(line) & ({name} | inputs):
            return False
        if reads_memory(value, known) and writes_memory(line, known):
            return False
    return False
