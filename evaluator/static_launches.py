"""Static rules about kernels: one of the candidate's own must be launched by code that runs, and must store."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from evaluator.launches import find_launches, is_jit
from evaluator.static_reading import Objection, Reading

KERNEL_ATTRIBUTES = frozenset({"best_config", "configs", "arg_names", "warmup", "__name__"})
_TELLTALES = frozenset({"type", "isinstance", "hasattr", "str", "repr", "callable"})


def launches(reading: Reading) -> None:
    """`forward` reaches a launch of a kernel that stores something, or a library whose kernels count."""
    if any(reading.is_library(reading.path(part)) for part in _reached(reading) if isinstance(part, ast.Name)):
        return
    if not reading.kernels:
        raise Objection(reading.entry, "defines no @triton.jit kernel", "write the computation as a Triton kernel")
    launched = _reachable_launches(reading)
    if not launched:
        reason = f"{reading.entry.name}.forward never launches a Triton kernel"
        raise Objection(reading.entry, reason, "launch it as kernel[grid](…) from forward")
    if not any(_stores(reading, reading.kernels[name].node) for name in launched):
        node = reading.kernels[launched[0]].node
        raise Objection(node, "the launched kernel stores nothing", "store its result with tl.store")


def kernels_are_tritons(reading: Reading) -> None:
    """A name that is launched means the Triton kernel of that name, whatever runs."""
    for kernel in reading.kernels.values():
        for mark in kernel.node.decorator_list:
            path = reading.path(mark.func if isinstance(mark, ast.Call) else mark)
            if not path.startswith(("triton.", "torch._inductor.runtime.")):
                raise Objection(
                    kernel.node, f"decorates {kernel.name} with {ast.unparse(mark)[:60]}", "use @triton.jit"
                )
    for node in reading.host_nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if name in reading.kernels:
                raise Objection(node, f"defines {name} again, which is a kernel", "give it another name")
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) if name in reading.kernels:
                if not _wraps_itself(reading, node, name):
                    raise Objection(node, f"rebinds the kernel {name}", "give it another name")
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name in reading.kernels:
                if attr not in KERNEL_ATTRIBUTES:
                    raise Objection(node, f"reaches {attr} of the kernel {name}", f"launch it as {name}[grid](…)")
            case ast.Call(func=ast.Name(id=function), args=[ast.Name(id=name), *_]):
                if function in _TELLTALES and name in reading.kernels:
                    reason = f"looks at what kind of object {name} is, as it differs between judging and timing"
                    raise Objection(node, reason, "leave it out")


def _wraps_itself(reading: Reading, node: ast.Name, name: str) -> bool:
    """Whether this is `kernel = triton.autotune(…)(kernel)` or the like."""
    parent = reading.parents.get(id(node))
    if not isinstance(parent, ast.Assign):
        return False
    called = parent.value
    while isinstance(called, ast.Call):
        if reading.path(called.func).startswith("triton."):
            return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(parent.value))
        called = called.func
    return False


def _stores(reading: Reading, kernel: ast.FunctionDef) -> bool:
    seen = {kernel.name}
    pending = [kernel]
    while pending:
        for call in reading.live(pending.pop()):
            if not isinstance(call, ast.Call):
                continue
            function = call.func
            name = reading.path(function).rpartition(".")[2]
            name = name or (function.attr if isinstance(function, ast.Attribute) else "")
            if name in ("store", "store_tensor_descriptor") or name.startswith("atomic_"):
                if not _masked_off(reading, call):
                    return True
            elif isinstance(function, ast.Name) and function.id in reading.kernels and function.id not in seen:
                seen.add(function.id)
                pending.append(reading.kernels[function.id].node)
    return False


def _masked_off(reading: Reading, call: ast.Call) -> bool:
    return any(keyword.arg == "mask" and reading.truth(keyword.value) is False for keyword in call.keywords) or (
        len(call.args) > 2 and reading.truth(call.args[2]) is False
    )


def _reachable_launches(reading: Reading) -> list[str]:
    """Kernels launched by code that `forward` can reach."""
    launched = {id(launch.call): launch.kernel.name for launch in find_launches(reading.tree)}
    found: list[str] = []
    named: list[str] = []
    by_another_name = False
    for part in _reached(reading):
        if id(part) in launched:
            found.append(launched[id(part)])
        elif _launches_by_another_name(part):
            by_another_name = True
        named += [name for name in _mentioned(part) if name in reading.kernels]
    return found + named if by_another_name else found


def _reached(reading: Reading) -> Iterator[ast.AST]:
    """Every node that `forward` can reach, following names through the module."""
    bodies = _bodies(reading)
    pending: list[ast.AST] = list(_forwards(reading))
    seen: set[int] = set()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        for part in reading.live(node):
            yield part
            for name in _mentioned(part):
                # `X.apply` reaches the forward of an autograd function.
                pending += bodies.get("forward" if name == "apply" else name, [])


def _launches_by_another_name(node: ast.AST) -> bool:
    """`chosen[grid](…)`, or `run = kernel[grid]` to be called later."""
    match node:
        case ast.Call(func=ast.Subscript(value=ast.Name() | ast.Attribute() | ast.Subscript())):
            return True
        case ast.Assign(value=ast.Subscript(value=ast.Name())):
            return True
    return False


def _bodies(reading: Reading) -> dict[str, list[ast.AST]]:
    """What runs where a name is used: functions, and lambdas bound to it."""
    bodies: dict[str, list[ast.AST]] = {}
    for node in reading.nodes:
        match node:
            case ast.FunctionDef(name=name) if not is_jit(node):
                bodies.setdefault(name, []).append(node)
            case ast.Assign(targets=[ast.Name(id=name) | ast.Attribute(attr=name)], value=ast.Lambda() as function):
                bodies.setdefault(name, []).append(function)
            case ast.ClassDef(name=name, body=body):
                made = [part for part in body if isinstance(part, ast.FunctionDef) and part.name in _CALLED_WITH_CLASS]
                bodies.setdefault(name, []).extend(made)
    return bodies


_CALLED_WITH_CLASS = ("__init__", "__call__")


def _forwards(reading: Reading) -> Iterator[ast.FunctionDef]:
    """The entry's forward, or the one it inherits from a class of the same module."""
    classes = {node.name: node for node in reading.nodes if isinstance(node, ast.ClassDef)}
    pending, seen = [reading.entry], set[str]()
    while pending:
        owner = pending.pop(0)
        own = [node for node in owner.body if isinstance(node, ast.FunctionDef) and node.name == "forward"]
        if own:
            yield from own
            return
        seen.add(owner.name)
        names = [base.id for base in owner.bases if isinstance(base, ast.Name)]
        pending += [classes[name] for name in names if name in classes and name not in seen]


def _mentioned(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name):
        return [node.id] if isinstance(node.ctx, ast.Load) else []
    return [node.attr] if isinstance(node, ast.Attribute) else []
