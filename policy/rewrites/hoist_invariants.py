"""hoist_invariants: load once before a loop what every iteration would load again."""

from __future__ import annotations

import libcst as cst

from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.cst_tools import (
    Statement,
    argument,
    assigned_names,
    body_of,
    definitions,
    emit,
    find,
    keyword,
    names_in,
    parse,
    replace,
    single_assignment,
    with_body,
)
from policy.rewrites.dataflow import Flow
from policy.rewrites.triton_tools import Aliases, aliases, kernel_named, kernels


class HoistInvariantsArgs(RewriteArgs):
    """Which loop."""

    kernel: str
    loop: int
    """Index among the kernel's `for` loops."""


class HoistInvariants(Rewrite[HoistInvariantsArgs]):
    """Moves loads that do not change from iteration to iteration, and what they need, before their loop.

    The compiler moves arithmetic out of loops by itself, but never a load: another program might write there.
    Here no store of the kernel goes through the pointer. Only masked loads are moved, which are harmless even
    when the loop runs zero times.
    """

    name = "hoist_invariants"
    Args = HoistInvariantsArgs

    def candidates(self, source: str, context: RewriteContext) -> list[HoistInvariantsArgs]:
        """Every loop with a load that does not depend on it."""
        module = parse(source)
        known = aliases(module)
        return [
            HoistInvariantsArgs(kernel=kernel.name.value, loop=index)
            for kernel in kernels(module)
            for index, loop in enumerate(find(kernel.body, cst.For))
            if _invariant(kernel, loop, known)
        ]

    def apply(self, source: str, args: HoistInvariantsArgs, context: RewriteContext) -> str:
        """The source with the loop's invariant loads before it."""
        module = parse(source)
        kernel = kernel_named(module, args.kernel)
        loops = find(kernel.body, cst.For)
        if not 0 <= args.loop < len(loops):
            raise RewriteError(f"kernel {args.kernel!r} has no loop number {args.loop}")
        loop = loops[args.loop]
        moved = _invariant(kernel, loop, aliases(module))
        if not moved:
            raise RewriteError(f"every load in loop {args.loop} of {args.kernel!r} depends on the iteration")
        kept = [line for line in body_of(loop) if line not in moved]
        return emit(replace(module, {loop: cst.FlattenSentinel([*moved, with_body(loop, kept)])}), source)

    def explain(self, args: HoistInvariantsArgs) -> str:
        """Why before the loop."""
        return f"loop {args.loop} of {args.kernel} no longer loads the same data in every iteration"


def _invariant(kernel: cst.FunctionDef, loop: cst.For, known: Aliases) -> list[Statement]:
    """The statements to move, in order; empty when no load is among them or nothing would stay."""
    if not isinstance(loop.body, cst.IndentedBlock):
        return []
    flow = Flow(kernel)
    body = list(body_of(loop))
    changing = set(assigned_names(loop))
    moved: list[Statement] = []
    for index, line in enumerate(body):
        pair = single_assignment(line)
        if pair is None or names_in(pair[1]) & changing or not _once(pair[0], index, body, loop, flow):
            continue
        if all(_movable(call, kernel, flow, known) for call in find(line, cst.Call)):
            moved.append(line)
            changing.discard(pair[0])
    loads = [c for line in moved for c in find(line, cst.Call) if known.language_name(c.func) == "load"]
    return moved if loads and len(moved) < len(body) else []


def _once(name: str, index: int, body: list[Statement], loop: cst.For, flow: Flow) -> bool:
    """Whether the line alone binds the name, in the loop and before it, and nothing reads it earlier."""
    others = [line for place, line in enumerate(body) if place != index]
    bound_elsewhere = any(name in assigned_names(line) for line in others)
    read_earlier = any(name in names_in(line) for line in body[:index])
    bound_outside = name in assigned_names(replace(flow.function.body, {loop: cst.RemoveFromParent()}))
    return not (bound_elsewhere or read_earlier or bound_outside or name in flow.params)


def _movable(call: cst.Call, kernel: cst.FunctionDef, flow: Flow, known: Aliases) -> bool:
    """Whether a call may run once instead of every time: no effect, and no memory that the kernel writes."""
    op = known.language_name(call.func)
    if op == "load" and call.args:
        masked = argument(call, "mask", 1) is not None and keyword(call, "volatile") is None
        return masked and not _pointers(call.args[0].value, flow) & _written(kernel, flow, known)
    return op is None or not op.startswith(("atomic", "store", "debug", "device_print", "rand"))


def _written(kernel: cst.FunctionDef, flow: Flow, known: Aliases) -> frozenset[str]:
    """The pointer parameters that some store or atomic of the kernel goes through."""
    addresses = [
        call.args[0].value
        for call in find(kernel.body, cst.Call)
        if (known.language_name(call.func) or "").startswith(("store", "atomic")) and call.args
    ]
    return frozenset().union(*(_pointers(address, flow) for address in addresses))


def _pointers(address: cst.BaseExpression, flow: Flow) -> frozenset[str]:
    """The parameters an address may start from: its leftmost name, followed through every assignment of it."""
    assigned = definitions(flow.function)
    found: set[str] = set()
    waiting = [address]
    seen: set[str] = set()
    while waiting:
        names = find(waiting.pop(), cst.Name)
        name = names[0].value if names else ""
        if name in seen:
            continue
        seen.add(name)
        found |= {name} & set(flow.params)
        waiting += assigned.get(name, [])
    return frozenset(found)
