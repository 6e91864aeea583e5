"""Static rules of a strict task about what tensors offer: methods that compute, by name, and Python's operator module.

What a name, a container or a call holds is often unknown here. So a method is judged by its name, called or not, unless
what it is read from is certainly no tensor.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from evaluator import static_rules as rules
from evaluator.static_reading import Objection, Reading, parameters
from evaluator.static_tensors import Tensors, bindings_of

_APPLYING = frozenset({"functools.reduce", "itertools.accumulate", "itertools.starmap"})
"""Functions that may be given an operator: `reduce(operator.mul, x.shape)`."""
_ROUNDS = 8
_PLAIN_PATHS = frozenset({"torch.finfo", "torch.iinfo", "triton.cdiv", "triton.next_power_of_2"})
_PLAIN_CALLS = frozenset({"set", "frozenset", "list", "dict", "tuple", "str", "int", "float", "len", "range", "sorted"})


def computing_methods(reading: Reading) -> None:
    """No method of a tensor that computes is called or kept."""
    others = _NoTensors(reading)
    for node in reading.host_nodes:
        if not isinstance(node, ast.Attribute) or node.attr not in rules.COMPUTING:
            continue
        if not isinstance(node.ctx, ast.Load) or (reading.path(node) and not reading.is_shadowed(node)):
            continue
        parent = reading.parents.get(id(node))
        called = isinstance(parent, ast.Call) and parent.func is node
        if called and reading.in_constructor(node):
            continue
        if not others.certainly(node.value) and not others.is_own(node):
            raise Objection(node, f".{node.attr}{'()' if called else ''} computes in torch", rules.IN_TRITON)


class _NoTensors:
    """Expressions that are certainly no tensors: literals, containers, sizes, objects of the candidate's classes."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        nodes = reading.host_nodes
        self._classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
        self._stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        self._offered: dict[str, set[str]] = {}
        self._names = self._find_names()
        self._loose = {name for node in nodes for name in self._unbound(node)}

    def _find_names(self) -> set[str]:
        """Names that no binding makes a tensor."""
        bound: dict[str, list[ast.expr | None]] = {}
        for node in self._reading.host_nodes:
            for name, value in bindings_of(node):
                bound.setdefault(name, []).append(value)
            for name in _bound_otherwise(node):
                bound.setdefault(name, []).append(None)
        self._names = {name for name, values in bound.items() if None not in values}
        for _ in range(_ROUNDS):
            unsure = {n for n in self._names if not all(v is not None and self.certainly(v) for v in bound[n])}
            if not unsure:
                return self._names
            self._names -= unsure
        return set()

    def _unbound(self, node: ast.AST) -> Iterator[str]:
        """Names of methods that are read from something else than `self` or an object: anything may become `self`."""
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                yield name
            case ast.Attribute(value=ast.Name(id="self")) if "self" not in self._stored:
                return
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
                return
            case ast.Attribute(value=value, attr=name) if not self.certainly(value):
                yield name

    def certainly(self, node: ast.expr) -> bool:
        """Whether an expression is no tensor."""
        match node:
            case ast.Constant() | ast.JoinedStr() | ast.List() | ast.Tuple() | ast.Dict() | ast.Set():
                return True
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp() | ast.Lambda():
                return True
            case ast.Call(func=func):
                return self._makes_none(func)
            case ast.Name(id=name):
                return name in self._names
        return False

    def is_own(self, node: ast.Attribute) -> bool:
        """Whether this is `self.name` in a class that says what its `name` is, and `self` is an object of it."""
        function = next(self._reading.functions_around(node), None)
        owner = self._reading.parents.get(id(function))
        if not isinstance(function, ast.FunctionDef) or not isinstance(owner, ast.ClassDef):
            return False
        if not all(map(self._keeps_self, function.decorator_list)):
            return False
        first = parameters(function)[:1]
        if not isinstance(node.value, ast.Name) or not first or first[0].arg != node.value.id:
            return False
        return node.attr in self._offers(owner) and function.name not in self._loose

    def _keeps_self(self, mark: ast.expr) -> bool:
        """Whether a decorated method is still called with its object."""
        path = self._reading.path(mark.func if isinstance(mark, ast.Call) else mark)
        return path.startswith(("torch.", "functools.")) or (isinstance(mark, ast.Name) and mark.id == "property")

    def _makes_none(self, func: ast.expr) -> bool:
        path = self._reading.path(func)
        if path:
            known = path in _PLAIN_PATHS or path.startswith(("collections.", "math."))
            return known and not self._reading.is_shadowed(func)
        if not isinstance(func, ast.Name) or func.id in self._stored:
            return False
        if func.id in self._classes:
            marks = self._classes[func.id].decorator_list
            return all(self._reading.path(mark.func if isinstance(mark, ast.Call) else mark) for mark in marks)
        return func.id in _PLAIN_CALLS and func.id not in self._reading.variables

    def _offers(self, owner: ast.ClassDef) -> set[str]:
        """Names that a class, or one of the module that it inherits from, defines or gives to `self`."""
        if owner.name in self._offered:
            return self._offered[owner.name]
        found = self._offered[owner.name] = set()
        for node in ast.walk(owner):
            match node:
                case ast.FunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                    found.add(name)
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    found.add(name)
        for base in owner.bases:
            if isinstance(base, ast.Name) and base.id in self._classes:
                found |= self._offers(self._classes[base.id])
        return found


def _bound_otherwise(node: ast.AST) -> Iterator[str]:
    """Names that a node gives a value which is no expression of its own."""
    match node:
        case (
            ast.FunctionDef(name=name) | ast.AugAssign(target=ast.Name(id=name)) | ast.MatchMapping(rest=str() as name)
        ):
            yield name
        case ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name) | ast.arg(arg=name):
            yield name


def operator_functions(reading: Reading, tensors: Tensors) -> None:
    """Functions of `operator` see no tensors: they are called on numbers, or given to `reduce` with numbers."""
    scopes = {id(node): function for function in tensors.functions for node in tensors.nodes(function)}
    for node in reading.host_nodes:
        if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
            continue
        path = reading.path(node)
        if not path.startswith("operator.") or path == "operator.itemgetter":
            continue
        parent = reading.parents.get(id(node))
        if isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr) and not reading.is_shadowed(node):
            continue
        call = reading.parents.get(id(parent)) if isinstance(parent, ast.keyword) else parent
        if not isinstance(call, ast.Call) or (call.func is not node and reading.path(call.func) not in _APPLYING):
            raise Objection(node, f"hands {path} around", "call it where it is needed, on numbers")
        function = scopes.get(id(call))
        names = tensors.names(function) if function is not None else set()
        if any(_holds_tensor(tensors, arg, names) for arg in (*call.args, *(k.value for k in call.keywords))):
            raise Objection(node, f"{path} computes in torch", rules.IN_TRITON)


def _holds_tensor(tensors: Tensors, node: ast.expr, names: set[str]) -> bool:
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return any(_holds_tensor(tensors, element, names) for element in node.elts)
    return tensors.is_tensor(node, names) or tensors.holds(node, names)
