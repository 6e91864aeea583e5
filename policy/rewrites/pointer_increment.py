"""pointer_increment: advance pointers through a loop instead of computing them anew."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.cst_tools import (
    assigned_names,
    body_of,
    code,
    emit,
    expression,
    find,
    fresh_name,
    integer,
    names_in,
    parenthesised,
    parse,
    replace,
    statement,
    substitute,
    with_body,
)
from policy.rewrites.dataflow import Flow, constant_range, rank_of, ranks
from policy.rewrites.triton_tools import Aliases, aliases, kernel_named, kernels


class PointerIncrementArgs(RewriteArgs):
    """Which loop."""

    kernel: str
    loop: int
    """Index among the kernel's `for` loops."""


@dataclass(frozen=True)
class _Pointer:
    nodes: tuple[cst.BaseExpression, ...]
    """The address expressions of the loop that are this pointer."""
    start: cst.BaseExpression
    step: cst.BaseExpression


class PointerIncrement(Rewrite[PointerIncrementArgs]):
    """`tl.load(p + (k + offs) * s)` in a loop over k -> pointers before the loop and `ptrs += BLOCK * s` in it.

    Only addresses that are linear in the loop variable, with a scalar slope, are taken out.
    """

    name = "pointer_increment"
    Args = PointerIncrementArgs

    def candidates(self, source: str, context: RewriteContext) -> list[PointerIncrementArgs]:
        """Every loop with at least one address that is linear in its variable."""
        module = parse(source)
        known = aliases(module)
        return [
            PointerIncrementArgs(kernel=kernel.name.value, loop=index)
            for kernel in kernels(module)
            for index, loop in enumerate(find(kernel.body, cst.For))
            if _pointers(kernel, loop, known)
        ]

    def apply(self, source: str, args: PointerIncrementArgs, context: RewriteContext) -> str:
        """The source with the loop's linear addresses carried from one iteration to the next."""
        module = parse(source)
        kernel = kernel_named(module, args.kernel)
        loops = find(kernel.body, cst.For)
        if not 0 <= args.loop < len(loops):
            raise RewriteError(f"kernel {args.kernel!r} has no loop number {args.loop}")
        loop = loops[args.loop]
        pointers = _pointers(kernel, loop, aliases(module))
        if not pointers:
            raise RewriteError(f"no address in loop {args.loop} of {args.kernel!r} is linear in its variable")
        before, after, edits = [], [], {}
        scope = module
        for pointer in pointers:
            name = fresh_name(scope, f"{_root(pointer.start)}_ptrs".replace("_ptr_ptrs", "_ptrs"))
            before.append(statement(f"{name} = {code(expression(code(pointer.start)))}\n"))
            after.append(statement(f"{name} += {code(expression(code(pointer.step)))}\n"))
            edits.update(dict.fromkeys(pointer.nodes, cst.Name(name)))
            scope = scope.with_changes(body=[*scope.body, before[-1]])
        inner = replace(loop, {node: name.deep_clone() for node, name in edits.items()})
        inner = with_body(inner, [*body_of(inner), *after])
        return emit(replace(module, {loop: cst.FlattenSentinel([*before, inner])}), source)

    def explain(self, args: PointerIncrementArgs) -> str:
        """Why carried pointers."""
        return f"loop {args.loop} of {args.kernel} advances its pointers: one addition instead of the whole address"


def _pointers(kernel: cst.FunctionDef, loop: cst.For, known: Aliases) -> list[_Pointer]:
    bounds = constant_range(loop)
    if bounds is None or not isinstance(loop.target, cst.Name) or not isinstance(loop.body, cst.IndentedBlock):
        return []
    variable = loop.target.value
    if variable in assigned_names(loop.body):
        return []
    flow, sizes = Flow(kernel), ranks(kernel, known)
    start = bounds[0] if bounds[0] is not None else cst.Integer("0")
    found: dict[str, _Pointer] = {}
    for call in find(loop.body, cst.Call):
        if known.language_name(call.func) not in ("load", "store") or not call.args:
            continue
        if flow.loops_around(call)[:1] != [loop]:
            continue
        address = call.args[0].value
        expanded = flow.expanded(address, call, names=assigned_names(loop.body))
        slope = _slope(expanded, variable, sizes, known)
        inner = names_in(expanded) - {variable}
        if slope is None or inner & assigned_names(loop) or _is_number(slope, 0):
            continue
        step = _product(bounds[2], slope)
        if names_in(step) & assigned_names(loop):
            continue
        first = _simplified(substitute(expanded, {variable: start}))
        key = code(first) + "|" + code(step)
        nodes = (*found[key].nodes, address) if key in found else (address,)
        found[key] = _Pointer(nodes, first, step)
    return list(found.values())


def _slope(node: cst.BaseExpression, variable: str, sizes: dict[str, int], known: Aliases) -> cst.BaseExpression | None:
    """d node / d variable when `node` is linear in it and the slope is a scalar; else None."""
    if variable not in names_in(node):
        return cst.Integer("0")
    if isinstance(node, cst.Name):
        return cst.Integer("1")
    if isinstance(node, cst.Subscript):
        # Broadcasting `x[:, None]` does not change a scalar slope; `variable` in the index itself is not linear.
        return _slope(node.value, variable, sizes, known) if _only_reshapes(node) else None
    if not isinstance(node, cst.BinaryOperation):
        return None
    left = _slope(node.left, variable, sizes, known)
    right = _slope(node.right, variable, sizes, known)
    if left is None or right is None:
        return None
    if isinstance(node.operator, (cst.Add, cst.Subtract)):
        return _sum(left, right, node.operator)
    if isinstance(node.operator, cst.Multiply):
        for slope, factor in ((left, node.right), (right, node.left)):
            if not _is_number(slope, 0):
                scalar = rank_of(factor, sizes, known) == 0 and variable not in names_in(factor)
                return _product(slope, factor) if scalar else None
    return None


def _only_reshapes(node: cst.Subscript) -> bool:
    kinds = [element.slice for element in node.slice]
    return all(isinstance(k, cst.Slice) or (isinstance(k, cst.Index) and code(k.value) == "None") for k in kinds)


def _sum(left: cst.BaseExpression, right: cst.BaseExpression, operator: cst.BaseBinaryOp) -> cst.BaseExpression | None:
    if _is_number(right, 0):
        return left
    if _is_number(left, 0) and isinstance(operator, cst.Add):
        return right
    return cst.BinaryOperation(parenthesised(left), operator, parenthesised(right))


def _product(left: cst.BaseExpression, right: cst.BaseExpression) -> cst.BaseExpression:
    if _is_number(left, 1):
        return right
    if _is_number(right, 1):
        return left
    return cst.BinaryOperation(parenthesised(left), cst.Multiply(), parenthesised(right))


def _is_number(node: cst.CSTNode, value: int) -> bool:
    return integer(node) == value


def _simplified(node: cst.BaseExpression) -> cst.BaseExpression:
    """`0 + x` and `x + 0` become `x`, at any depth."""

    class _Simplify(cst.CSTTransformer):
        def leave_BinaryOperation(  # noqa: N802 - libcst's name
            self, original_node: cst.BinaryOperation, updated_node: cst.BinaryOperation
        ) -> cst.BaseExpression:
            if isinstance(updated_node.operator, cst.Add):
                if _is_number(updated_node.left, 0):
                    return updated_node.right
                if _is_number(updated_node.right, 0):
                    return updated_node.left
            return updated_node

    result = node.visit(_Simplify())
    assert isinstance(result, cst.BaseExpression)
    return result


def _root(node: cst.BaseExpression) -> str:
    """The leftmost name of an address: its base pointer."""
    names = find(node, cst.Name)
    return names[0].value if names else "data"
