"""Static rules of a strict task about layers: they may hold parameters, and are neither called nor handed around.

A layer is followed from where it is made through names, attributes, containers and loops of the module. Where it goes
somewhere that cannot be followed, that is objected to.
"""

from __future__ import annotations

import ast

from evaluator import static_rules as rules
from evaluator.static_reading import Objection, Reading

_FIX = "use its parameters in a Triton kernel"
_SAME = frozenset(
    {"to", "half", "float", "bfloat16", "double", "cuda", "cpu", "eval", "train", "requires_grad_", "type"}
)
"""Methods of a layer that return it."""
_INNER = frozenset({"modules", "children", "named_modules", "named_children", "get_submodule"})
"""Methods of a module that return layers."""
_KEEPING = frozenset({"append", "extend", "insert", "add_module", "register_module", "update", "setdefault"})
_LOOKING = frozenset({"isinstance", "issubclass", "len", "print"})
_PASSING = frozenset({"enumerate", "zip", "list", "tuple", "reversed", "sorted", "next", "iter"})


def layers(reading: Reading) -> None:
    """No layer is called, inherited from, or given to code that may call it."""
    for node in reading.host_nodes:
        if isinstance(node, ast.ClassDef) and (base := next((b for b in node.bases if _is_layer(reading, b)), None)):
            raise Objection(node, f"{node.name} is a {reading.path(base)}, which computes in torch", rules.IN_TRITON)
        if isinstance(node, ast.Attribute) and node.attr == "forward" and _is_layer(reading, node.value):
            raise Objection(node, f"calls {reading.path(node)}", rules.IN_TRITON)
        if isinstance(node, ast.Name | ast.Attribute) and _is_layer(reading, node):
            _class_is_written_out(reading, node)
    _Followed(reading).run()


def _is_layer(reading: Reading, node: ast.expr) -> bool:
    path = reading.path(node)
    name = path.rpartition(".")[2]
    return path.startswith("torch.nn.") and name[:1].isupper() and name not in rules.HOLDERS


def _class_is_written_out(reading: Reading, node: ast.expr) -> None:
    """A class of layers is called, asked about or given a second name; no container or function gets it."""
    parent = reading.parents.get(id(node))
    if isinstance(parent, ast.Tuple):
        parent = reading.parents.get(id(parent))
    match parent:
        case ast.Call(func=func) if func is node:
            return
        case ast.Call(func=ast.Name(id=name)) if name in _LOOKING:
            return
        case ast.Call() | ast.keyword() | ast.List() | ast.Tuple() | ast.Dict() | ast.Set() | ast.Return() | ast.For():
            raise Objection(node, f"hands {reading.path(node)} around", rules.IN_TRITON)
        case (
            ast.IfExp() | ast.Starred() | ast.BoolOp() | ast.arguments() | ast.Lambda() | ast.Assign(value=ast.Tuple())
        ):
            raise Objection(node, f"hands {reading.path(node)} around", rules.IN_TRITON)


class _Followed:
    """Where layers go: a list of expressions to look at, which grows as names and attributes turn out to be layers."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._shared = {name for node in reading.nodes for name in _shared(node)}
        self._pending: list[ast.AST] = [node for node in reading.host_nodes if self._is_made(node)]
        self._known: set[tuple[str, int]] = set()
        self._seen: set[int] = set()
        self._uses: dict[str, list[ast.expr]] = {}
        for node in reading.host_nodes:
            match node:
                case ast.Name(id=name, ctx=ast.Load()):
                    self._uses.setdefault(name, []).append(node)
                case ast.Attribute(attr=name, ctx=ast.Load()) if not reading.path(node):
                    self._uses.setdefault(f".{name}", []).append(node)

    def run(self) -> None:
        while self._pending:
            node = self._pending.pop()
            if id(node) not in self._seen:
                self._seen.add(id(node))
                self._follow(node)

    def _is_made(self, node: ast.AST) -> bool:
        match node:
            case ast.Call(func=ast.Attribute(attr=attr)) if attr in _INNER:
                return True
            case ast.Call(func=func):
                return _is_layer(self._reading, func)
        return False

    def _follow(self, node: ast.AST) -> None:
        """Look at what an expression that is a layer, or holds some, is used for."""
        parent = self._reading.parents.get(id(node))
        match parent:
            case ast.Call(func=func) if func is node:
                raise Objection(node, f"calls {self._words(node)}", _FIX)
            case ast.Call() | ast.keyword():
                self._argument(node, parent)
            case ast.Attribute(attr=attr):
                self._attribute(node, parent, attr)
            case ast.Assign(targets=targets):
                self._kept(node, targets)
            case ast.AnnAssign(target=target) | ast.NamedExpr(target=target) | ast.AugAssign(target=target):
                self._kept(node, [target])
                if isinstance(parent, ast.NamedExpr):
                    self._pending.append(parent)
            case ast.For(target=target, iter=source) | ast.comprehension(target=target, iter=source) if source is node:
                self._kept(node, [_without_label(target, source)])
            case ast.Return():
                self._returned(node)
            case ast.Subscript(value=value) if value is not node:
                raise Objection(node, f"hands {self._words(node)} around", _FIX)
            case ast.Expr() | ast.Compare() | ast.If() | ast.Assert() | ast.Delete() | ast.UnaryOp():
                pass
            case ast.expr():
                self._pending.append(parent)
            case _:
                raise Objection(node, f"hands {self._words(node)} around", _FIX)

    def _argument(self, node: ast.AST, parent: ast.AST) -> None:
        call = self._reading.parents.get(id(parent)) if isinstance(parent, ast.keyword) else parent
        assert isinstance(call, ast.Call | ast.ClassDef)
        match call:
            case ast.Call(func=ast.Name(id=name)) if name in _LOOKING:
                return
            case ast.Call(func=ast.Name(id=name)) if name in _PASSING:
                self._pending.append(call)
            case ast.Call(func=ast.Attribute(value=owner, attr=attr)) if attr in _KEEPING:
                named = call.args[:1] if attr in ("add_module", "register_module") else []
                for name_of in named:
                    if not isinstance(name_of, ast.Constant):
                        raise Objection(node, "keeps a layer under a name that cannot be read here", _FIX)
                    self._learn_attribute(str(name_of.value))
                if not named:
                    self._kept(node, [owner])
            case ast.Call(func=func) if self._reading.path(func).startswith("torch.nn."):
                self._pending.append(call)
            case _:
                raise Objection(node, f"hands {self._words(node)} around", _FIX)

    def _attribute(self, node: ast.AST, parent: ast.Attribute, attr: str) -> None:
        call = self._reading.parents.get(id(parent))
        called = isinstance(call, ast.Call) and call.func is parent
        if attr == "forward" or (attr in _SAME and not called):
            raise Objection(parent, f"calls {self._words(parent)}", _FIX)
        if (attr in _SAME or attr in ("items", "values", "pop", "get")) and call is not None:
            self._pending.append(call)

    def _kept(self, node: ast.AST, targets: list[ast.expr]) -> None:
        for target in targets:
            match target:
                case ast.Name(id=name):
                    self._learn_name(name, self._scope(target))
                    if isinstance(self._reading.parents.get(id(self._reading.parents.get(id(target)))), ast.ClassDef):
                        self._learn_attribute(name)
                case ast.Attribute(attr=attr):
                    self._learn_attribute(attr)
                case ast.Subscript(value=value) | ast.Starred(value=value):
                    self._kept(node, [value])
                case ast.Tuple(elts=elts) | ast.List(elts=elts):
                    self._kept(node, elts)
                case ast.Call():
                    pass  # an element appended to a layer that was just made, which is followed itself
                case _:
                    raise Objection(node, f"hands {self._words(node)} around", _FIX)

    def _returned(self, node: ast.AST) -> None:
        """What calls a function that returns a layer is a layer."""
        function = next(self._reading.functions_around(node), None)
        name = function.name if isinstance(function, ast.FunctionDef) else ""
        if (f"{name}()", 0) in self._known:
            return
        self._known.add((f"{name}()", 0))
        for use in (*self._uses.get(name, []), *self._uses.get(f".{name}", [])):
            call = self._reading.parents.get(id(use))
            if isinstance(call, ast.Call) and call.func is use:
                self._pending.append(call)

    def _learn_name(self, name: str, scope: int) -> None:
        if (name, scope) not in self._known:
            self._known.add((name, scope))
            self._pending += [node for node in self._uses.get(name, []) if self._sees(node, scope)]

    def _learn_attribute(self, attr: str) -> None:
        if (f".{attr}", 0) not in self._known:
            self._known.add((f".{attr}", 0))
            self._pending += self._uses.get(f".{attr}", [])

    def _scope(self, node: ast.Name) -> int:
        """The function whose variable a name is, by identity; 0 for names of the module."""
        function = next(self._reading.functions_around(node), None)
        return 0 if function is None or node.id in self._shared else id(function)

    def _sees(self, node: ast.AST, scope: int) -> bool:
        return scope == 0 or any(id(function) == scope for function in self._reading.functions_around(node))

    def _words(self, node: ast.AST) -> str:
        if isinstance(node, ast.Call) and _is_layer(self._reading, node.func):
            return f"a {self._reading.path(node.func)}"
        return f"the layer {' '.join(ast.unparse(node).split())[:60]}"


def _without_label(target: ast.expr, source: ast.expr) -> ast.expr:
    """What a loop gives layers to, without the number or name that comes with each."""
    match target, source:
        case ast.Tuple(elts=[_, second]), ast.Call(func=ast.Name(id="enumerate")):
            return second
        case ast.Tuple(elts=[_, second]), ast.Call(
            func=ast.Attribute(attr="items" | "named_modules" | "named_children")
        ):
            return second
    return target


def _shared(node: ast.AST) -> list[str]:
    return node.names if isinstance(node, ast.Global | ast.Nonlocal) else []
