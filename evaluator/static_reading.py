"""What the static stage knows of one candidate: its names, what they stand for, and which code can run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from evaluator.launches import Kernel, bindings, find_kernels, is_jit
from evaluator.static_members import MEMBERS
from evaluator.types import Task

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_ALIAS_ROUNDS = 8


class Objection(Exception):  # noqa: N818  not an error: a verdict on its way out
    """Why a candidate is refused, and at which node."""

    def __init__(self, node: ast.AST | None, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.line: int | None = getattr(node, "lineno", None)
        self.reason = reason
        self.fix = fix


@dataclass(frozen=True)
class Reading:
    """One candidate's syntax tree with its entry class; everything derived from it is computed once."""

    tree: ast.Module
    entry: ast.ClassDef
    task: Task

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node, outer ones first."""
        return list(ast.walk(self.tree))

    @cached_property
    def parents(self) -> dict[int, ast.AST]:
        """The parent of every node, by the node's identity."""
        return {id(child): node for node in self.nodes for child in ast.iter_child_nodes(node)}

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        """Jit functions by name."""
        return find_kernels(self.tree)

    @cached_property
    def host_nodes(self) -> list[ast.AST]:
        """Every node outside of jit functions."""
        found: list[ast.AST] = []
        pending: list[ast.AST] = [self.tree]
        while pending:
            node = pending.pop()
            if not is_jit(node):
                found.append(node)
                pending.extend(ast.iter_child_nodes(node))
        return found

    @cached_property
    def imports(self) -> dict[str, str]:
        """Local name -> dotted path of everything imported."""
        return imported_names(self.tree)

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Local name -> dotted path of everything imported, and of names that are assigned such a path."""
        return self._resolved[0]

    @property
    def settled(self) -> bool:
        """Whether `aliases` holds every such name, rather than having given up on a long chain of them."""
        return self._resolved[1]

    @cached_property
    def _resolved(self) -> tuple[dict[str, str], bool]:
        names = dict(self.imports)
        for _ in range(_ALIAS_ROUNDS):
            before = len(names)
            for name, value in self.plain_bindings:
                if name not in names and (path := dotted(value, names)):
                    names[name] = path
            if len(names) == before:
                return names, True
        return names, False

    @cached_property
    def plain_bindings(self) -> list[tuple[str, ast.expr]]:
        """Every name with each value that it is assigned on its own."""
        found: list[tuple[str, ast.expr]] = []
        for node in self.nodes:
            match node:
                case ast.Assign(targets=targets, value=value):
                    found += [(target.id, value) for target in targets if isinstance(target, ast.Name)]
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    found.append((name, value))
                case ast.NamedExpr(target=ast.Name(id=name), value=value):
                    found.append((name, value))
        return found

    @cached_property
    def written(self) -> frozenset[str]:
        """Names of the candidate's own classes and functions."""
        return frozenset(node.name for node in self.nodes if isinstance(node, ast.ClassDef | ast.FunctionDef))

    @cached_property
    def defined(self) -> frozenset[str]:
        """Every name of a function, class, variable, parameter or attribute that the candidate gives a meaning."""
        return frozenset(name for node in self.nodes for name in _defined(node))

    @cached_property
    def variables(self) -> frozenset[str]:
        """Names that are bound to something else than an imported path somewhere."""
        names = {node.arg for node in self.nodes if isinstance(node, ast.arg)}
        plain = {id(value): name for name, value in self.plain_bindings if self.path(value)}
        for node in self.nodes:
            match node:
                case ast.Name(id=name, ctx=ast.Store()):
                    value = _assigned(self.parents.get(id(node)))
                    if value is None or id(value) not in plain:
                        names.add(name)
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    names.add(name)
        return frozenset(names)

    def path(self, node: ast.expr) -> str:
        """The dotted path that a name or attribute chain stands for; "" where it is nothing imported."""
        return dotted(node, self.aliases)

    def is_module(self, path: str) -> bool:
        """Whether an imported path is a module (rather than a function, class or value)."""
        return path in MEMBERS

    def is_library(self, path: str) -> bool:
        """Whether an imported path lies in a library that the task allows beside torch and triton."""
        return path.split(".", maxsplit=1)[0] in self.task.imports

    def truth(self, node: ast.expr) -> bool | None:
        """What a condition always is; None where that depends on anything."""
        match node:
            case ast.Constant(value=value):
                return bool(value)
            case ast.Name(id=name):
                found = bindings(self.tree, name)
                only = found[0] if len(found) == 1 else None
                return bool(only.value) if isinstance(only, ast.Constant) else None
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.truth(operand)
                return None if inner is None else not inner
            case ast.BoolOp(op=op, values=values):
                known = [self.truth(value) for value in values]
                deciding = isinstance(op, ast.Or)
                if deciding in known:
                    return deciding
                return None if None in known else not deciding
        return None

    def live(self, node: ast.AST) -> Iterator[ast.AST]:
        """`node` and what is below it and can run: without dead branches, code after a return, and inner functions.

        Functions and lambdas bound to a name are left out, because they run only where that name is used.
        """
        yield node
        for child in self._live_children(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            if isinstance(child, ast.Lambda) and isinstance(node, ast.Assign):
                continue
            yield from self.live(child)

    def _live_children(self, node: ast.AST) -> Iterator[ast.AST]:
        skipped = self._dead_part(node)
        for _, value in ast.iter_fields(node):
            if isinstance(value, ast.AST) and value is not skipped:
                yield value
            elif isinstance(value, list) and value is not skipped:
                for item in value:
                    if isinstance(item, ast.AST):
                        yield item
                    if isinstance(item, ast.stmt) and self._ends(item):
                        break
                    if isinstance(node, ast.BoolOp) and self.truth(item) is isinstance(node.op, ast.Or):
                        break

    def _dead_part(self, node: ast.AST) -> object:
        match node:
            case ast.If(test=test, body=body, orelse=orelse) | ast.IfExp(test=test, body=body, orelse=orelse):
                known = self.truth(test)
                return None if known is None else orelse if known else body
            case ast.While(test=test, body=body) if self.truth(test) is False:
                return body
            case ast.For(iter=ast.List(elts=[]) | ast.Tuple(elts=[]), body=body):
                return body
            case ast.For(iter=ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=0)]), body=body):
                return body
        return None

    def _ends(self, statement: ast.stmt) -> bool:
        match statement:
            case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
                return True
            case ast.If(test=test, body=body) if self.truth(test):
                return any(self._ends(inner) for inner in body)
        return False

    def in_constructor(self, node: ast.AST) -> bool:
        """Whether a node runs as part of a constructor, and not of a function made there."""
        function = next(self.functions_around(node), None)
        return isinstance(function, ast.FunctionDef) and function.name == "__init__"

    def is_shadowed(self, node: ast.expr) -> bool:
        """Whether a path begins with an imported class, function or value whose name a variable has taken over."""
        while isinstance(node, ast.Attribute):
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.variables:
            return False
        path = self.aliases.get(node.id, "")
        return not self.is_module(path) and not self.is_library(path)

    def functions_around(self, node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda]:
        """The functions in whose bodies (not defaults or decorators) a node lies, innermost first."""
        child = node
        while (parent := self.parents.get(id(child))) is not None:
            if isinstance(parent, FUNCTIONS) and _in_body(parent, child):
                yield parent
            child = parent


def _in_body(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, child: ast.AST) -> bool:
    body: Sequence[ast.AST] = [function.body] if isinstance(function, ast.Lambda) else function.body
    return any(child is statement for statement in body)


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.arg]:
    """Every parameter, the starred ones included."""
    args = function.args
    starred = [arg for arg in (args.vararg, args.kwarg) if arg is not None]
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *starred]


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Local name -> dotted path of everything the module imports."""
    return {name: path for node in ast.walk(tree) for name, path in imported(node)}


def imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that an import statement binds, each with its dotted path."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            first = alias.name.split(".")[0]
            yield alias.asname or first, alias.name if alias.asname else first
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def is_private(name: str) -> bool:
    """Whether a name begins with an underscore and is not one of Python's own (`__init__`)."""
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def _assigned(statement: ast.AST | None) -> ast.expr | None:
    return statement.value if isinstance(statement, ast.Assign | ast.AnnAssign | ast.NamedExpr) else None


def _defined(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name


def dotted(node: ast.expr, aliases: Mapping[str, str]) -> str:
    """The full path an attribute chain stands for, its first name resolved through the imports; "" for others."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute | ast.NamedExpr):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in aliases:
        return ""
    return ".".join([aliases[node.id], *reversed(parts)])


def root(node: ast.expr) -> ast.expr:
    """What an attribute or subscript chain begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node
