"""Finding Triton's own things in a source: kernels, language calls and launches, under any import alias."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import libcst as cst

from policy.rewrites.base import RewriteError
from policy.rewrites.cst_tools import dotted_name, enclosing, find, parameter_names, parameters, parent_map, walk


@dataclass(frozen=True)
class Aliases:
    """Under which names a module knows triton and its language."""

    triton: frozenset[str] = frozenset()
    language: frozenset[str] = frozenset()
    members: Mapping[str, str] = field(default_factory=dict)
    """Names imported from the language, e.g. `{"ld": "load"}`."""
    jit: frozenset[str] = frozenset()

    @property
    def tl(self) -> str:
        """A text that names the language module, for inserted code."""
        if self.language:
            return "tl" if "tl" in self.language else min(self.language)
        if self.triton:
            return f"{min(self.triton)}.language"
        raise RewriteError("the source does not import triton.language")

    def language_name(self, node: cst.CSTNode) -> str | None:
        """`load` for `tl.load`, `math.exp` for `tl.math.exp`, under any alias; else None."""
        name = dotted_name(node)
        if name is None:
            return None
        if name in self.members:
            return self.members[name]
        head, _, rest = name.partition(".")
        if head in self.language and rest:
            return rest
        if head in self.triton and rest.startswith("language."):
            return rest.removeprefix("language.")
        return None


@lru_cache(maxsize=256)
def aliases(module: cst.Module) -> Aliases:
    """The aliases of triton in a module, from all its imports."""
    triton: set[str] = set()
    language: set[str] = set()
    members: dict[str, str] = {}
    jit: set[str] = set()
    for node in walk(module):
        if isinstance(node, cst.Import):
            for alias in node.names:
                _read_import(alias, triton, language)
        elif isinstance(node, cst.ImportFrom) and node.module is not None:
            _read_from_import(node, language, members, jit)
    return Aliases(frozenset(triton), frozenset(language), members, frozenset(jit))


def _read_import(alias: cst.ImportAlias, triton: set[str], language: set[str]) -> None:
    name, bound = dotted_name(alias.name), alias.evaluated_alias
    if name == "triton":
        triton.add(bound or name)
    elif name == "triton.language":
        (language if bound else triton).add(bound or "triton")


def _read_from_import(node: cst.ImportFrom, language: set[str], members: dict[str, str], jit: set[str]) -> None:
    origin = dotted_name(node.module) if node.module is not None else None
    if origin not in ("triton", "triton.language") or isinstance(node.names, cst.ImportStar):
        return
    for alias in node.names:
        name = alias.evaluated_name
        bound = alias.evaluated_alias or name
        if origin == "triton.language":
            members[bound] = name
        elif name == "language":
            language.add(bound)
        elif name == "jit":
            jit.add(bound)


@lru_cache(maxsize=256)
def kernels(module: cst.Module) -> tuple[cst.FunctionDef, ...]:
    """Every `@triton.jit` function of the module (device helpers too), in the order of the source."""
    known = aliases(module)
    return tuple(node for node in find(module, cst.FunctionDef) if is_kernel(node, known))


def is_kernel(function: cst.FunctionDef, known: Aliases) -> bool:
    """Whether a function is decorated with `triton.jit`, plain or called, under any alias."""
    for decorator in function.decorators:
        target = decorator.decorator
        name = dotted_name(target.func if isinstance(target, cst.Call) else target)
        if name is None:
            continue
        head, _, last = name.rpartition(".")
        if name in known.jit or (last == "jit" and head in known.triton):
            return True
    return False


def kernel_named(module: cst.Module, name: str) -> cst.FunctionDef:
    """The kernel `name`; raises RewriteError when there is none."""
    for function in kernels(module):
        if function.name.value == name:
            return function
    raise RewriteError(f"there is no @triton.jit function named {name!r}")


@dataclass(frozen=True)
class CallSite:
    """One call of a language function in a kernel; `index` counts calls of the same `ops` in that kernel."""

    kernel: str
    index: int
    op: str
    call: cst.Call


def call_sites(module: cst.Module, ops: Collection[str]) -> list[CallSite]:
    """Every call of `tl.<op>` in every kernel, in order; `index` counts within the kernel, over all `ops`."""
    known = aliases(module)
    sites: list[CallSite] = []
    for kernel in kernels(module):
        matches = [(call, known.language_name(call.func)) for call in find(kernel.body, cst.Call)]
        chosen = [(call, op) for call, op in matches if op is not None and op in ops]
        sites += [CallSite(kernel.name.value, index, op, call) for index, (call, op) in enumerate(chosen)]
    return sites


def call_site(module: cst.Module, ops: Collection[str], kernel: str, index: int) -> CallSite:
    """One of `call_sites`; raises RewriteError when it does not exist."""
    for site in call_sites(module, ops):
        if site.kernel == kernel and site.index == index:
            return site
    kinds = "/".join(f"tl.{op}" for op in sorted(ops))
    raise RewriteError(f"kernel {kernel!r} has no {kinds} call number {index}")


@dataclass(frozen=True)
class Launch:
    """One `kernel[grid](…)` in host code."""

    kernel: str
    call: cst.Call
    grid: cst.BaseExpression
    function: cst.FunctionDef | None
    """The host function around it."""


def launches(module: cst.Module, kernel: str | None = None) -> list[Launch]:
    """Every launch of the module's kernels (or of one kernel), in the order of the source."""
    wanted = {function.name.value for function in kernels(module)} if kernel is None else {kernel}
    parents = parent_map(module)
    found: list[Launch] = []
    for call in find(module, cst.Call):
        if not isinstance(call.func, cst.Subscript) or not isinstance(call.func.value, cst.Name):
            continue
        name = call.func.value.value
        if name in wanted:
            grid = _grid(call.func)
            found.append(Launch(name, call, grid, enclosing(call, cst.FunctionDef, parents)))
    return found


def _grid(subscript: cst.Subscript) -> cst.BaseExpression:
    elements = [element.slice for element in subscript.slice]
    values = [element.value for element in elements if isinstance(element, cst.Index)]
    if len(values) == 1:
        return values[0]
    return cst.Tuple([cst.Element(value) for value in values])


def grid_axes(grid: cst.BaseExpression) -> list[cst.BaseExpression] | None:
    """The axes of a literal grid tuple; None for a name or a lambda."""
    if isinstance(grid, cst.Tuple):
        return [element.value for element in grid.elements]
    return None


def with_grid(call: cst.Call, grid: cst.BaseExpression) -> cst.Call:
    """The launch with another grid."""
    assert isinstance(call.func, cst.Subscript)
    func = call.func.with_changes(slice=[cst.SubscriptElement(cst.Index(grid))])
    return call.with_changes(func=func)


def is_constexpr(param: cst.Param, known: Aliases) -> bool:
    """Whether a kernel parameter is annotated `tl.constexpr` (also written as a string)."""
    if param.annotation is None:
        return False
    annotation = param.annotation.annotation
    if isinstance(annotation, cst.SimpleString):
        return annotation.raw_value.split(".")[-1] == "constexpr"
    return known.language_name(annotation) == "constexpr"


def constexpr_names(kernel: cst.FunctionDef, known: Aliases) -> list[str]:
    """The kernel's `tl.constexpr` parameters, in order."""
    return [param.name.value for param in parameters(kernel) if is_constexpr(param, known)]


def launch_argument(launch: Launch, kernel: cst.FunctionDef, name: str) -> cst.Arg | None:
    """The argument a launch passes for the kernel parameter `name`; None when it leaves it out."""
    names = parameter_names(kernel)
    for position, arg in enumerate(launch.call.args):
        if arg.star:
            return None
        if (arg.keyword is None and position < len(names) and names[position] == name) or (
            arg.keyword is not None and arg.keyword.value == name
        ):
            return arg
    return None
