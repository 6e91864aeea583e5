"""Finds kernels, launches and the literals that configure them in a candidate's syntax tree."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from evaluator.syntax import statements

LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


@dataclass(frozen=True)
class Kernel:
    """A `@triton.jit` function."""

    node: ast.FunctionDef

    @property
    def name(self) -> str:
        """The function's name."""
        return self.node.name

    @property
    def parameters(self) -> list[ast.arg]:
        """Positional and keyword-only parameters in order."""
        return [*self.node.args.posonlyargs, *self.node.args.args, *self.node.args.kwonlyargs]

    @property
    def constexprs(self) -> list[str]:
        """Names of the parameters annotated `tl.constexpr`, in order."""
        return [
            arg.arg
            for arg in self.parameters
            if arg.annotation is not None and "constexpr" in ast.unparse(arg.annotation)
        ]

    @property
    def uses_dot(self) -> bool:
        """Whether the kernel multiplies tiles on the tensor cores."""
        return any(
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "dot"
            for node in ast.walk(self.node)
        )

    @property
    def has_loop(self) -> bool:
        """Whether anything in the kernel can be pipelined."""
        return any(isinstance(node, ast.For | ast.While) for node in statements(self.node))

    def default(self, parameter: str) -> ast.expr | None:
        """The default value's expression of a parameter."""
        args = self.node.args
        positional = [*args.posonlyargs, *args.args]
        defaults = (
            dict(zip([arg.arg for arg in positional][-len(args.defaults) :], args.defaults, strict=True))
            if (args.defaults)
            else {}
        )
        keyword = {arg.arg: value for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if value}
        return {**defaults, **keyword}.get(parameter)


@dataclass(frozen=True)
class Launch:
    """One `kernel[grid](…)` in host code, and the scopes its names are looked up in (innermost first)."""

    kernel: Kernel
    call: ast.Call
    grid: ast.expr
    scopes: tuple[ast.AST, ...] = field(default=())

    def binding(self, parameter: str) -> ast.expr | None:
        """The expression bound to a parameter or launch option at this launch, `**dict` entries included."""
        for keyword in self.call.keywords:
            if keyword.arg == parameter:
                return keyword.value
        names = [arg.arg for arg in self.kernel.parameters]
        if parameter in names:
            index = names.index(parameter)
            if index < len(self.call.args) and not any(
                isinstance(arg, ast.Starred) for arg in self.call.args[: index + 1]
            ):
                return self.call.args[index]
        for keyword in self.call.keywords:
            if keyword.arg is None:
                entries = self.dictionary(keyword.value)
                if parameter in entries:
                    return entries[parameter]
        return self.kernel.default(parameter)

    def dictionary(self, node: ast.expr) -> dict[str, ast.expr]:
        """Entries of a dict literal, given directly or through a name bound once."""
        resolved = self.resolve(node)
        if isinstance(resolved, ast.Dict):
            return {
                key.value: value
                for key, value in zip(resolved.keys, resolved.values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            }
        if isinstance(resolved, ast.Call) and isinstance(resolved.func, ast.Name) and resolved.func.id == "dict":
            return {keyword.arg: keyword.value for keyword in resolved.keywords if keyword.arg}
        return {}

    def literal(self, node: ast.expr | None) -> ast.Constant | None:
        """The integer literal an expression stands for, through names, attributes of self and dict entries."""
        resolved = self.resolve(node) if node is not None else None
        if isinstance(resolved, ast.Constant) and type(resolved.value) is int:
            return resolved
        return None

    def resolve(self, node: ast.expr, depth: int = 4) -> ast.expr | None:
        """Follow names and subscripts to the one expression they stand for; None when that is not certain."""
        if depth == 0:
            return None
        match node:
            case ast.Name(id=name):
                found = self._bound(name)
                return None if found is None else self.resolve(found, depth - 1)
            case ast.Attribute(value=ast.Name(id="self"), attr=attr):
                found = self._attribute(attr)
                return None if found is None else self.resolve(found, depth - 1)
            case ast.Subscript(value=value, slice=ast.Constant(value=str() as key)):
                entry = self.dictionary(value).get(key)
                return None if entry is None else self.resolve(entry, depth - 1)
        return node

    def _bound(self, name: str) -> ast.expr | None:
        for scope in self.scopes:
            found = bindings(scope, name)
            if found:
                return found[0] if len(found) == 1 else None
        return None

    def _attribute(self, attr: str) -> ast.expr | None:
        for scope in self.scopes:
            if isinstance(scope, ast.ClassDef):
                values = [
                    node.value
                    for node in statements(scope)
                    if isinstance(node, ast.Assign)
                    and any(ast.unparse(target) == f"self.{attr}" for target in node.targets)
                ]
                return values[0] if len(values) == 1 else None
        return None


def bindings(scope: ast.AST, name: str) -> list[ast.expr | None]:
    """Everything `name` is bound to directly in a scope; None stands for a binding that is no plain value."""
    found: list[ast.expr | None] = []
    for node in statements(scope, own=True):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Name):
                        found += [value] if target.id == name else []
                    elif any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(target)):
                        found.append(None)
            case ast.AnnAssign(target=ast.Name(id=target_name), value=value) if target_name == name:
                found.append(value)
            case ast.AugAssign(target=ast.Name(id=target_name)) if target_name == name:
                found.append(None)
            case ast.For(target=target) if any(
                isinstance(part, ast.Name) and part.id == name for part in ast.walk(target)
            ):
                found.append(None)
    if isinstance(scope, ast.FunctionDef) and any(arg.arg == name for arg in Kernel(scope).parameters):
        found.append(Kernel(scope).default(name))
    return found


def is_jit(node: ast.AST) -> bool:
    """Whether a node is a function that Triton compiles."""
    return isinstance(node, ast.FunctionDef) and any(
        _last_name(mark.func if isinstance(mark, ast.Call) else mark) == "jit" for mark in node.decorator_list
    )


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def find_kernels(tree: ast.Module) -> dict[str, Kernel]:
    """The module's jit functions by name, in the order of the source."""
    return {node.name: Kernel(node) for node in statements(tree) if isinstance(node, ast.FunctionDef) and is_jit(node)}


def find_launches(tree: ast.Module) -> list[Launch]:
    """Every launch in host code, in the order of the source."""
    kernels = find_kernels(tree)
    found: list[Launch] = []

    def visit(node: ast.AST, scopes: tuple[ast.AST, ...]) -> None:
        if is_jit(node):
            return
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            kernel = kernels.get(_last_name(node.func.value))
            if kernel is not None:
                found.append(Launch(kernel, node, node.func.slice, scopes))
        inner = (node, *scopes) if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) else scopes
        for child in ast.iter_child_nodes(node):
            visit(child, inner)

    visit(tree, ())
    return sorted(found, key=lambda launch: (launch.call.lineno, launch.call.col_offset))
