"""drop_mask: where a size divides its block, load and store without masks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.cst_tools import (
    argument,
    code,
    dotted_name,
    emit,
    expression,
    find,
    fresh_name,
    has_star_arguments,
    integer,
    names_in,
    parameters,
    parenthesised,
    parse,
    replace,
    same,
    single_assignment,
    with_keyword,
    with_parameter,
)
from policy.rewrites.dataflow import Flow, constant_range
from policy.rewrites.triton_tools import (
    Aliases,
    Launch,
    aliases,
    call_sites,
    constexpr_names,
    grid_axes,
    kernel_named,
    kernels,
    launch_argument,
    launches,
)

_MASK_POSITION = {"load": 1, "store": 2}


class DropMaskArgs(RewriteArgs):
    """Which size of which kernel is tested against which block."""

    kernel: str
    size: str
    """The kernel parameter in `index < size`."""
    block: str
    """The block's `tl.constexpr` parameter."""


@dataclass(frozen=True)
class _Bound:
    """A proof that `index < size` is true everywhere under a condition on the host."""

    size: str
    block: str
    whole: bool
    """True: one block covers the size, so that the condition is `size >= block`; else divisibility."""


@dataclass(frozen=True)
class _Site:
    call: cst.Call
    mask: cst.Arg
    other: cst.Arg | None
    bounds: frozenset[_Bound]


class DropMask(Rewrite[DropMaskArgs]):
    """`tl.load(p, mask=m)` -> `tl.load(p, mask=None if EVEN_N else m)`.

    `EVEN_N` is a constexpr parameter that every launch computes as `n % BLOCK == 0`, so that all shapes stay
    right. A condition is dropped only when its index is a loop over the size in steps of the block, a grid of
    `cdiv(size, block)` programs, or one block that covers the size.
    """

    name = "drop_mask"
    Args = DropMaskArgs

    def candidates(self, source: str, context: RewriteContext) -> list[DropMaskArgs]:
        """Every size and block for which some access loses its mask."""
        module = parse(source)
        found: dict[DropMaskArgs, None] = {}
        for kernel in kernels(module):
            for site in _sites(module, kernel)[0]:
                for bound in sorted(site.bounds, key=lambda b: (b.size, b.block)):
                    args = DropMaskArgs(kernel=kernel.name.value, size=bound.size, block=bound.block)
                    found.setdefault(args)
        return list(found)

    def apply(self, source: str, args: DropMaskArgs, context: RewriteContext) -> str:
        """The source with masks guarded by a constexpr flag."""
        module = parse(source)
        kernel = kernel_named(module, args.kernel)
        sites, prover = _sites(module, kernel)
        bounds = {b for s in sites for b in s.bounds if (b.size, b.block) == (args.size, args.block)}
        if not bounds:
            raise RewriteError(f"no mask of {args.kernel!r} is provably true when {args.size} divides {args.block}")
        whole = all(bound.whole for bound in bounds)
        dropped = {bound for bound in bounds if bound.whole == whole}
        flag = fresh_name(module, f"EVEN_{args.size.upper()}")
        edits = {s.call: _unmasked(s, dropped, flag, prover) for s in sites if s.bounds & dropped}
        # A plain parameter cannot follow one with a default; every launch passes the flag anyway.
        default = "False" if any(param.default is not None for param in parameters(kernel)) else None
        changed = with_parameter(replace(kernel, edits), flag, f"{aliases(module).tl}.constexpr", default)
        calls = {
            launch.call: with_keyword(launch.call, flag, _condition(launch, kernel, args, whole))
            for launch in launches(module, args.kernel)
        }
        return emit(replace(module, {kernel: changed, **calls}), source)

    def explain(self, args: DropMaskArgs) -> str:
        """When masks go."""
        return f"{args.kernel} tests no bounds where {args.block} divides {args.size}: plain wide accesses"


def _condition(launch: Launch, kernel: cst.FunctionDef, args: DropMaskArgs, whole: bool) -> cst.BaseExpression:
    size, block = (launch_argument(launch, kernel, name) for name in (args.size, args.block))
    assert size is not None
    assert block is not None
    left, right = code(parenthesised(size.value)), code(parenthesised(block.value))
    return expression(f"{left} >= {right}" if whole else f"{left} % {right} == 0")


def _sites(module: cst.Module, kernel: cst.FunctionDef) -> tuple[list[_Site], _Prover]:
    """The kernel's masked accesses; none when a launch cannot be given a flag."""
    name = kernel.name.value
    calls = launches(module, name)
    prover = _Prover(kernel, aliases(module), calls)
    found: list[_Site] = []
    uses = sum(node.value == name for node in find(module, cst.Name))
    # Another mention is a call from another kernel, which could not pass the flag.
    if (
        uses != 1 + len(calls)
        or not calls
        or len(kernel.decorators) > 1
        or any(has_star_arguments(call.call) for call in calls)
    ):
        return found, prover
    for site in call_sites(module, ("load", "store")):
        mask = argument(site.call, "mask", _MASK_POSITION[site.op])
        if site.kernel != name or mask is None:
            continue
        conditions = _conjuncts(mask.value, site.call, prover.flow)
        bounds = frozenset(b for c in conditions if (b := prover.bound(c, site.call)) is not None)
        other = argument(site.call, "other", 2) if site.op == "load" else None
        found.append(_Site(site.call, mask, other, bounds))
    return found, prover


def _conjuncts(node: cst.BaseExpression, at: cst.CSTNode, flow: Flow) -> Iterator[cst.BaseExpression]:
    """The conditions whose conjunction is the mask; of a guarded mask, those that its guard still leaves."""
    if isinstance(node, cst.IfExp):
        yield from _conjuncts(node.body, at, flow)
    elif isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.BitAnd):
        yield from _conjuncts(node.left, at, flow)
        yield from _conjuncts(node.right, at, flow)
    elif isinstance(inner := _definition(node, at, flow), (cst.BinaryOperation, cst.IfExp)):
        yield from _conjuncts(inner, at, flow)
    else:
        yield node


def _definition(node: cst.BaseExpression, at: cst.CSTNode, flow: Flow) -> cst.BaseExpression | None:
    """The value of a mask's name, when the names in it still mean the same at the access."""
    if not isinstance(node, cst.Name):
        return None
    line = flow.origin_line(node.value, at)
    pair = single_assignment(line) if isinstance(line, cst.SimpleStatementLine) else None
    if pair is None or line is None:
        return None
    stable = all(flow.origin_line(name, line) is flow.origin_line(name, at) for name in names_in(pair[1]))
    return pair[1] if stable else None


class _Prover:
    """Decides which comparisons are true for all indices, given the launches."""

    def __init__(self, kernel: cst.FunctionDef, known: Aliases, calls: list[Launch]) -> None:
        self.kernel = kernel
        self.known = known
        self.flow = Flow(kernel)
        self.calls = calls
        self.blocks = set(constexpr_names(kernel, known))
        self.host = {id(call): Flow(call.function) for call in calls if call.function is not None}

    def bound(self, condition: cst.BaseExpression, at: cst.CSTNode) -> _Bound | None:
        """The proof for `index < size`, or None."""
        condition = self._comparison(condition, at)
        if not isinstance(condition, cst.Comparison) or len(condition.comparisons) != 1:
            return None
        comparison = condition.comparisons[0]
        size = comparison.comparator
        if not isinstance(comparison.operator, cst.LessThan) or not isinstance(size, cst.Name):
            return None
        if not isinstance(self.flow.origin(size.value, at), cst.Param):
            return None
        index = self.flow.expanded(_without_axes(condition.left), at)
        base, block = self._split(_without_axes(index))
        if block is None or not self._launched_with(size.value, block):
            return None
        if base is None:
            return _Bound(size.value, block, whole=True)
        divides = self._loops_over(base, size, block, at) or self._grid_covers(base, size.value, block)
        return _Bound(size.value, block, whole=False) if divides else None

    def _comparison(self, condition: cst.BaseExpression, at: cst.CSTNode) -> cst.BaseExpression:
        """The comparison behind `mask[:, None]`."""
        inner = _without_axes(condition)
        return _definition(inner, at, self.flow) or inner

    def _split(self, index: cst.BaseExpression) -> tuple[cst.BaseExpression | None, str | None]:
        """`(base, block)` of `base + tl.arange(0, block)`; the base is None when it is missing."""
        if (block := self._run(index)) is not None:
            return None, block
        if isinstance(index, cst.BinaryOperation) and isinstance(index.operator, cst.Add):
            for base, run in ((index.left, index.right), (index.right, index.left)):
                if (block := self._run(_without_axes(run))) is not None:
                    return base, block
        return None, None

    def _run(self, node: cst.BaseExpression) -> str | None:
        if not isinstance(node, cst.Call):
            return None
        name = self.known.language_name(node.func)
        if name in ("max_contiguous", "multiple_of") and node.args:
            return self._run(node.args[0].value)
        if name != "arange" or len(node.args) != 2 or integer(node.args[0].value) != 0:
            return None
        block = node.args[1].value
        return block.value if isinstance(block, cst.Name) and block.value in self.blocks else None

    def _launched_with(self, size: str, block: str) -> bool:
        return all(
            launch_argument(call, self.kernel, name) is not None for call in self.calls for name in (size, block)
        )

    def _loops_over(self, base: cst.BaseExpression, size: cst.Name, block: str, at: cst.CSTNode) -> bool:
        """Whether `base` is the variable of `range(0, size, block)`."""
        loop = self.flow.origin(base.value, at) if isinstance(base, cst.Name) else None
        bounds = constant_range(loop) if isinstance(loop, cst.For) else None
        if bounds is None or loop is None:
            return False
        start, end, step = bounds
        from_zero = start is None or integer(start) == 0
        steps = isinstance(step, cst.Name) and step.value == block
        return from_zero and steps and self._at_most(self.flow.expanded(end, loop), size)

    def _at_most(self, end: cst.BaseExpression, size: cst.Name) -> bool:
        """Whether a loop's end is the size or the minimum of the size and something else."""
        if isinstance(end, cst.Call) and self.known.language_name(end.func) == "minimum":
            return any(same(arg.value, size) for arg in end.args)
        return same(end, size)

    def _grid_covers(self, base: cst.BaseExpression, size: str, block: str) -> bool:
        """Whether `base` is `program_id(axis) * block` on a grid of `cdiv(size, block)` programs."""
        if not isinstance(base, cst.BinaryOperation) or not isinstance(base.operator, cst.Multiply):
            return False
        for factor, other in ((base.left, base.right), (base.right, base.left)):
            if isinstance(factor, cst.Name) and factor.value == block and isinstance(other, cst.Call):
                axis = argument(other, "axis", 0)
                number = None if axis is None else integer(axis.value)
                is_id = self.known.language_name(other.func) == "program_id"
                if is_id and number is not None:
                    return all(self._axis_is_cdiv(call, number, size, block) for call in self.calls)
        return False

    def _axis_is_cdiv(self, call: Launch, axis: int, size: str, block: str) -> bool:
        flow = self.host.get(id(call))
        grid = call.grid if flow is None else flow.expanded(call.grid, call.call)
        if isinstance(grid, cst.Lambda):
            grid = grid.body
        axes = grid_axes(grid)
        node = axes[axis] if axes is not None and axis < len(axes) else None
        if not isinstance(node, cst.Call) or (dotted_name(node.func) or "").split(".")[-1] != "cdiv":
            return False
        values = [arg.value for arg in node.args]
        wanted = [launch_argument(call, self.kernel, name) for name in (size, block)]
        if len(values) != 2 or wanted[0] is None or wanted[1] is None:
            return False
        expected = [w.value if flow is None else flow.expanded(w.value, call.call) for w in wanted if w is not None]
        by_meta = _meta_key(values[1]) == block
        return same(values[0], expected[0]) and (by_meta or same(values[1], expected[1]))


def _meta_key(node: cst.BaseExpression) -> str | None:
    """`BLOCK` for `meta["BLOCK"]`."""
    if isinstance(node, cst.Subscript) and len(node.slice) == 1:
        index = node.slice[0].slice
        if isinstance(index, cst.Index) and isinstance(index.value, cst.SimpleString):
            return str(index.value.raw_value)
    return None


def _without_axes(node: cst.BaseExpression) -> cst.BaseExpression:
    """`x` for `x[:, None]`."""
    return node.value if isinstance(node, cst.Subscript) else node


def _unmasked(site: _Site, dropped: set[_Bound], flag: str, prover: _Prover) -> cst.Call:
    """The access with its mask guarded by `flag`, and its `other` value wherever a mask is left."""

    def without(node: cst.BaseExpression) -> cst.BaseExpression | None:
        if isinstance(node, cst.IfExp):
            body, orelse = without(node.body), without(node.orelse)
            if body is None and orelse is None:
                return None
            return node.with_changes(body=body or cst.Name("None"), orelse=orelse or cst.Name("None"))
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.BitAnd):
            left, right = without(node.left), without(node.right)
            return node.with_changes(left=left, right=right) if left and right else left or right
        inner = _definition(node, site.call, prover.flow)
        if inner is not None and isinstance(inner, (cst.BinaryOperation, cst.IfExp)):
            kept = without(inner)
            return node if kept is not None and same(kept, inner) else kept
        return None if prover.bound(node, site.call) in dropped else node

    mask = cst.IfExp(
        test=cst.Name(flag),
        body=_branch(without(site.mask.value)),
        orelse=_branch(site.mask.value),
    )
    edits = {site.mask: site.mask.with_changes(value=mask)}
    if site.other is not None:
        edits[site.other] = site.other.with_changes(value=_mirrored(mask, site.other.value))
    return site.call.with_changes(args=[edits.get(arg, arg) for arg in site.call.args])


def _branch(node: cst.BaseExpression | None) -> cst.BaseExpression:
    if node is None or (isinstance(node, cst.Name) and node.value == "None"):
        return cst.Name("None")
    return parenthesised(node) if isinstance(node, cst.IfExp) else node


def _mirrored(mask: cst.BaseExpression, other: cst.BaseExpression) -> cst.BaseExpression:
    """`other` under the same guards as the mask: a load without a mask takes no `other`."""
    value = other
    while isinstance(value, cst.IfExp):
        value = value.orelse
    if isinstance(mask, cst.IfExp):
        body, orelse = _mirrored(mask.body, value), _mirrored(mask.orelse, value)
        if same(body, orelse):
            return body
        return mask.with_changes(body=_branch(body), orelse=_branch(orelse), lpar=[], rpar=[])
    return cst.Name("None") if isinstance(mask, cst.Name) and mask.value == "None" else value
