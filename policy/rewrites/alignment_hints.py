"""alignment_hints: tell the compiler what is always true of indices, so that it vectorises and simplifies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import libcst as cst

from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.cst_tools import (
    Statement,
    code,
    emit,
    expression,
    find,
    insert_at_start,
    parse,
    replace,
    same,
    single_assignment,
    statement,
)
from policy.rewrites.dataflow import Flow, constant_range
from policy.rewrites.triton_tools import (
    Aliases,
    aliases,
    constexpr_names,
    kernel_named,
    kernels,
    launch_argument,
    launches,
)

Hint = Literal["contiguous", "assume"]


class AlignmentHintArgs(RewriteArgs):
    """Which name of which kernel gets which hint."""

    kernel: str
    hint: Hint
    target: str
    """The hinted name: a block of indices, a program id, or a parameter."""


@dataclass(frozen=True)
class _Place:
    hint: Hint
    target: str
    line: cst.SimpleStatementLine | None
    """The assignment that is changed or followed; None: the start of the kernel."""
    block: str = ""


class AlignmentHints(Rewrite[AlignmentHintArgs]):
    """Adds hints that hold for every shape.

    `contiguous`: `offs = i * BLOCK + tl.arange(0, BLOCK)` starts at a multiple of BLOCK and runs on without gaps.
    `assume`: a program id, and a parameter that every launch fills with a size or a stride, is never negative.
    """

    name = "alignment_hints"
    Args = AlignmentHintArgs

    def candidates(self, source: str, context: RewriteContext) -> list[AlignmentHintArgs]:
        """Every provable hint that is not there yet; once for a name that is assigned in several places."""
        module = parse(source)
        found = {
            (kernel.name.value, place.hint, place.target): AlignmentHintArgs(
                kernel=kernel.name.value, hint=place.hint, target=place.target
            )
            for kernel in kernels(module)
            for place in _places(module, kernel)
        }
        return list(found.values())

    def apply(self, source: str, args: AlignmentHintArgs, context: RewriteContext) -> str:
        """The source with one hint."""
        module = parse(source)
        kernel = kernel_named(module, args.kernel)
        wanted = [p for p in _places(module, kernel) if (p.hint, p.target) == (args.hint, args.target)]
        if not wanted:
            raise RewriteError(f"nothing provable and new to say of {args.target!r} in {args.kernel!r}")
        tl = aliases(module).tl
        if args.hint == "contiguous":
            return emit(replace(module, dict(_hinted(place, tl) for place in wanted)), source)
        line = statement(f"{tl}.assume({args.target} >= 0)\n")
        place = wanted[0]
        if place.line is None:
            return emit(replace(module, {kernel: insert_at_start(kernel, [line])}), source)
        return emit(replace(module, {place.line: cst.FlattenSentinel([place.line, line])}), source)

    def explain(self, args: AlignmentHintArgs) -> str:
        """What the compiler learns."""
        if args.hint == "contiguous":
            return f"{args.target} in {args.kernel} is declared contiguous and aligned to its block: wide accesses"
        return f"{args.target} in {args.kernel} is declared non-negative: cheaper index arithmetic"


def _hinted(place: _Place, tl: str) -> tuple[cst.CSTNode, cst.CSTNode]:
    assert place.line is not None
    pair = single_assignment(place.line)
    assert pair is not None
    inner = f"{tl}.multiple_of({code(pair[1])}, {place.block})"
    return pair[1], expression(f"{tl}.max_contiguous({inner}, {place.block})")


def _places(module: cst.Module, kernel: cst.FunctionDef) -> list[_Place]:
    known = aliases(module)
    flow = Flow(kernel)
    blocks = set(constexpr_names(kernel, known))
    found: dict[tuple[str, str], list[_Place]] = {}
    for line in find(kernel.body, cst.SimpleStatementLine):
        pair = single_assignment(line)
        if pair is None:
            continue
        name, value = pair
        block = _aligned_block(value, line, flow, known, blocks)
        if block is not None:
            found.setdefault(("contiguous", name), []).append(_Place("contiguous", name, line, block))
        elif isinstance(value, cst.Call) and known.language_name(value.func) == "program_id":
            found.setdefault(("assume", name), []).append(_Place("assume", name, line))
    for name in _non_negative_parameters(module, kernel):
        found[("assume", name)] = [_Place("assume", name, None)]
    said = _assumed(kernel, known)
    # A name assigned twice says nothing certain after its first assignment.
    return [p for (hint, name), places in found.items() if name not in said for p in places if _once(hint, places)]


def _once(hint: str, places: list[_Place]) -> bool:
    return hint == "contiguous" or len(places) == 1


def _aligned_block(
    value: cst.BaseExpression, line: Statement, flow: Flow, known: Aliases, blocks: set[str]
) -> str | None:
    """BLOCK for `i * BLOCK + tl.arange(0, BLOCK)` or `start + tl.arange(0, BLOCK)`; else None."""
    if not isinstance(value, cst.BinaryOperation) or not isinstance(value.operator, cst.Add):
        return None
    for base, run in ((value.left, value.right), (value.right, value.left)):
        span = flow.expanded(run, line)
        if not isinstance(span, cst.Call) or known.language_name(span.func) != "arange":
            continue
        if len(span.args) != 2 or code(span.args[0].value) != "0":
            continue
        block = span.args[1].value
        is_block = isinstance(block, cst.Name) and block.value in blocks
        if is_block and _is_multiple(base, block, line, flow):
            return code(block)
    return None


def _is_multiple(base: cst.BaseExpression, block: cst.BaseExpression, line: Statement, flow: Flow) -> bool:
    expanded = flow.expanded(base, line)
    if isinstance(expanded, cst.BinaryOperation) and isinstance(expanded.operator, cst.Multiply):
        return same(expanded.left, block) or same(expanded.right, block)
    if isinstance(expanded, cst.Name):
        loop = flow.origin(expanded.value, line)
        if isinstance(loop, cst.For):
            bounds = constant_range(loop)
            zero = bounds is not None and (bounds[0] is None or code(bounds[0]) == "0")
            return zero and bounds is not None and same(bounds[2], block)
    return False


def _non_negative_parameters(module: cst.Module, kernel: cst.FunctionDef) -> list[str]:
    """Parameters that every launch fills with `.stride(…)`, `.shape[…]`, `.size(…)` or `.numel()`.

    A literal 1 is a constant to the compiler and a tensor's own sizes and strides are never negative in torch.
    """
    known = aliases(module)
    sites = launches(module, kernel.name.value)
    constants = set(constexpr_names(kernel, known))
    names = [p.name.value for p in kernel.params.params if p.name.value not in constants]
    return [
        name
        for name in names
        if sites
        and all((arg := launch_argument(site, kernel, name)) is not None and _is_size(arg.value) for site in sites)
    ]


def _is_size(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.Subscript):
        return isinstance(node.value, cst.Attribute) and node.value.attr.value == "shape"
    return (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and node.func.attr.value in ("stride", "size", "numel")
    )


def _assumed(kernel: cst.FunctionDef, known: Aliases) -> set[str]:
    """Names that some `tl.assume` or `tl.max_contiguous` of the kernel already speaks of."""
    calls = [c for c in find(kernel.body, cst.Call) if known.language_name(c.func) == "assume"]
    return {code(call.args[0].value).split(" ")[0] for call in calls if call.args}
