"""Which expressions of host code are certainly tensors: for the rule that a strict task computes in kernels only.

Nothing is guessed: a name counts only when every value it is bound to is a tensor. What arrives through containers,
attributes set elsewhere or lambdas is not followed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from evaluator import static_rules as rules
from evaluator.launches import is_jit
from evaluator.static_reading import Reading, parameters

_ROUNDS = 4
_HELD = "[]"
"""Added to a name whose value is a list or tuple of tensors."""
Function = ast.FunctionDef


class Tensors:
    """Tensor names of every host function, found by a few rounds over the module."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        nodes = reading.host_nodes
        self.functions = [node for node in nodes if isinstance(node, ast.FunctionDef) and not is_jit(node)]
        self._named: dict[str, list[Function]] = {}
        for function in self.functions:
            self._named.setdefault(function.name, []).append(function)
        self._own = {id(function): list(own_nodes(function)) for function in self.functions}
        self._held = {target.attr for target in self._held_targets(nodes)}
        self._names: dict[int, set[str]] = {id(function): self._evident(function) for function in self.functions}
        self._returning: set[str] = set()
        for _ in range(_ROUNDS):
            for function in self.functions:
                self._learn(function)

    def names(self, function: Function) -> set[str]:
        """Names that are tensors throughout a function."""
        return self._names[id(function)]

    def nodes(self, function: Function) -> list[ast.AST]:
        """Nodes of a function without those of functions inside it."""
        return self._own[id(function)]

    def is_tensor(self, node: ast.expr, names: set[str]) -> bool:
        """Whether an expression is certainly a tensor, given the names that are."""
        match node:
            case ast.Name(id=name):
                return name in names
            case ast.Subscript(value=value, slice=index):
                return self.is_tensor(value, names) or (not isinstance(index, ast.Slice) and self.holds(value, names))
            case ast.Attribute(value=ast.Name(id="self"), attr=attr) if attr in self._held:
                return True
            case ast.Attribute(value=value, attr=attr):
                return attr in rules.TENSOR_ATTRIBUTES and self.is_tensor(value, names)
            case ast.NamedExpr(value=value):
                return self.is_tensor(value, names)
            case ast.BinOp(left=left, right=right):
                return self.is_tensor(left, names) or self.is_tensor(right, names)
            case ast.UnaryOp(op=ast.USub() | ast.Invert(), operand=operand):
                return self.is_tensor(operand, names)
            case ast.IfExp(body=body, orelse=orelse):
                return self.is_tensor(body, names) and self.is_tensor(orelse, names)
            case ast.Call(func=func):
                return self._returns_tensor(func, names)
        return False

    def holds(self, node: ast.expr, names: set[str]) -> bool:
        """Whether an expression is certainly a list or tuple of tensors alone."""
        match node:
            case ast.Name(id=name):
                return f"{name}{_HELD}" in names
            case ast.List(elts=elts) | ast.Tuple(elts=elts):
                return bool(elts) and all(self.is_tensor(element, names) for element in elts)
            case ast.Subscript(value=value, slice=ast.Slice()):
                return self.holds(value, names)
        return False

    def _returns_tensor(self, func: ast.expr, names: set[str]) -> bool:
        path = self._reading.path(func)
        if path:
            return path.startswith("torch.") and path.removeprefix("torch.") in rules.TENSOR_MAKERS
        if isinstance(func, ast.Attribute):
            if isinstance(func.value, ast.Name) and func.value.id == "self":
                return func.attr in self._returning
            return func.attr in rules.VIEWS and self.is_tensor(func.value, names)
        return isinstance(func, ast.Name) and func.id in self._returning

    def _held_targets(self, nodes: list[ast.AST]) -> Iterator[ast.Attribute]:
        for node in nodes:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.Call):
                continue
            if self._reading.path(node.value.func) == "torch.nn.Parameter":
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (target for target in targets if isinstance(target, ast.Attribute))

    def _evident(self, function: Function) -> set[str]:
        """Parameters annotated as tensors, or used as only tensors are."""
        found = set()
        used = {
            node.value.id
            for node in self._own[id(function)]
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.attr in rules.TENSOR_EVIDENCE
        }
        for arg in parameters(function):
            annotated = arg.annotation is not None and self._reading.path(arg.annotation) == "torch.Tensor"
            if annotated or (arg.arg in used and arg.arg not in ("self", "cls")):
                found.add(arg.arg)
        return found

    def _learn(self, function: Function) -> None:
        names = self._names[id(function)]
        bound: dict[str, list[ast.expr | None]] = {}
        for node in self._own[id(function)]:
            for name, value in bindings_of(node):
                bound.setdefault(name, []).append(value)
            if isinstance(node, ast.Call):
                self._pass_on(node, names)
        given = {arg.arg for arg in parameters(function)}
        for name, values in bound.items():
            certain = all(value is not None and self.is_tensor(value, names | {name} & given) for value in values)
            if not certain:
                names.discard(name)
            elif name not in given:
                names.add(name)
            if all(value is not None and self.holds(value, names) for value in values):
                names.add(name + _HELD)
            else:
                names.discard(name + _HELD)
        for inner in self.functions:
            if any(inner is node for node in self._own[id(function)]):
                hidden = {arg.arg + end for arg in parameters(inner) for end in ("", _HELD)}
                self._names[id(inner)] |= names - hidden
        returned = [node.value for node in self._own[id(function)] if isinstance(node, ast.Return)]
        if returned and all(value is not None and self.is_tensor(value, names) for value in returned):
            self._returning.add(function.name)

    def _pass_on(self, call: ast.Call, names: set[str]) -> None:
        """A tensor handed to a function of the module makes that parameter a tensor."""
        match call.func:
            case ast.Name(id=name):
                offset = 0
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                offset = 1
            case _:
                return
        for function in self._named.get(name, []):
            args = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)][offset:]
            pairs = [*zip(args, call.args, strict=False), *((k.arg, k.value) for k in call.keywords if k.arg)]
            for parameter, value in pairs:
                if not parameter or len(self._named[name]) > 1:
                    continue
                if self.is_tensor(value, names):
                    self._names[id(function)].add(parameter)
                elif self.holds(value, names):
                    self._names[id(function)].add(parameter + _HELD)


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function's body; functions and classes inside it are named but not entered."""
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            pending.extend(ast.iter_child_nodes(node))


def bindings_of(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """The names a node binds, each with the expression it takes its value from (the first element of it for loops)."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _unpacked(target, value)
        case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
            yield from _unpacked(target, value)
        case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
            if isinstance(target, ast.Name):
                yield target.id, ast.Subscript(value=value, slice=ast.Constant(value=0), ctx=ast.Load())
            else:
                yield from _unpacked(target, value)
        case ast.withitem(optional_vars=ast.expr() as target):
            yield from _unpacked(target, None)


def _unpacked(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[str, ast.expr | None]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List):
        matched = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
        values = value.elts if matched and isinstance(value, ast.Tuple | ast.List) else [None] * len(target.elts)
        for part, item in zip(target.elts, values, strict=True):
            yield from _unpacked(part, item)
    elif isinstance(target, ast.Starred):
        yield from _unpacked(target.value, None)
