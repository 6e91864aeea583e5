"""Inductor's kernels as plain `@triton.jit` functions; see `evaluator.seeds.inductor`."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from evaluator import syntax

_IN_TRITON = ("exp", "exp2", "log", "log2", "sin", "cos", "rsqrt", "sqrt", "erf", "floor", "ceil", "fma", "abs")
"""Functions of libdevice that `tl.math` has too: these compile everywhere and run in the interpreter."""
_GRIDS = {"Grid1D": ("x",), "Grid2D": ("x", "y"), "Grid2DWithYZOverflow": ("x", "y", "z"), "Grid3D": ("x", "y", "z")}
_HEURISTICS = ("pointwise", "reduction", "persistent_reduction")
_ELEMENTS = 1024
"""Of a program, where nothing has been tuned yet."""


class UnreadableError(Exception):
    """What in Inductor's code has no plain form."""


class Kernel(NamedTuple):
    """One kernel."""

    name: str
    source: str
    arguments: tuple[str, ...]
    """Those that are no block sizes, in order."""
    blocks: dict[str, str]
    """Block size (`XBLOCK`) -> the constant that holds it."""
    constants: tuple[str, ...]
    """Lines that give the constants their values."""
    grid: tuple[str, ...]
    """Axes in the order of program ids: `x`, `y`, `z`."""
    warps: int


def kernels_of(module: ast.Module) -> dict[str, Kernel]:
    """By Inductor's own names. Raises `UnreadableError`."""
    found: dict[str, Kernel] = {}
    for node in module.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Attribute(value=ast.Name(id="async_compile"), attr=kind), args=[_, code, *_]),
            ):
                if kind != "triton" or not isinstance(code, ast.Constant):
                    raise UnreadableError(f"it holds a kernel of another kind: {kind}")
                found[name] = _kernel(name, str(code.value), len(found))
    return found


def _kernel(name: str, text: str, number: int) -> Kernel:
    functions = [node for node in syntax.parse(text).body if isinstance(node, ast.FunctionDef)]
    (function,) = [node for node in functions if node.name == name]
    helpers = [_plain(node, node.name) for node in functions if node is not function]
    (heuristic,) = [node for node in function.decorator_list if isinstance(node, ast.Call)]
    kind = ast.unparse(heuristic.func).rpartition(".")[2]
    settings = {str(keyword.arg): keyword.value for keyword in heuristic.keywords}
    grid = _entry(settings["inductor_meta"], "grid_type")
    if kind not in _HEURISTICS or grid not in _GRIDS:
        raise UnreadableError(f"it holds a kernel of another kind: {kind} on {grid}")
    hints = {str(key).rstrip("_"): int(value) for key, value in ast.literal_eval(settings["size_hints"]).items()}
    names = [one.arg for one in function.args.args]
    sizes = _block_sizes(hints, [one for one in names if one.endswith("BLOCK")], kind == "persistent_reduction")
    plain = _plain_name(name, number)
    constants = {block: block + (f"_{number}" if number else "") for block in sizes}
    return Kernel(
        plain,
        "\n\n\n".join([*helpers, _plain(function, plain)]),
        tuple(one for one in names if not one.endswith("BLOCK")),
        constants,
        tuple(f"{constants[block]} = {size}" for block, size in sizes.items()),
        _GRIDS[grid],
        8 if hints.get("r0", 0) >= 2048 else 4,
    )


def _entry(mapping: ast.expr, key: str) -> str:
    """A text in a dict display whose other values may be anything."""
    assert isinstance(mapping, ast.Dict)
    for name, value in zip(mapping.keys, mapping.values, strict=True):
        if isinstance(name, ast.Constant) and name.value == key and isinstance(value, ast.Constant):
            return str(value.value)
    return "an unknown grid"


def _block_sizes(hints: dict[str, int], blocks: list[str], persistent: bool) -> dict[str, int]:
    """A start for the tuner: about a thousand elements in a program, whole rows where they fit."""
    sizes: dict[str, int] = {}
    left = _ELEMENTS
    for block in sorted(blocks, key=lambda name: (not name.startswith("R"), name)):
        hint = hints.get(block.removesuffix("BLOCK").rstrip("_").lower(), _ELEMENTS)
        most = 32 if "YBLOCK" in blocks and block in ("XBLOCK", "YBLOCK") else left
        sizes[block] = max(1, min(hint, most, 2048))
        left = max(1, left // sizes[block])
    if persistent and "XBLOCK" in sizes:
        sizes["XBLOCK"] = max(1, min(sizes["XBLOCK"], _ELEMENTS // max(hints.get("r0", 1), 1)))
    return {block: sizes[block] for block in blocks}


def _plain_name(name: str, number: int) -> str:
    """`triton_red_fused_exp_sub_0` is `exp_sub_kernel` or, where others are called so too, `exp_sub_kernel_1`."""
    words = re.sub(r"^triton_[a-z]+_fused|_\d+$", "", name).strip("_").lower()[:40].strip("_")
    return f"{words if words[:1].isalpha() else 'fused'}_kernel" + (f"_{number}" if number else "")


class _Translate(ast.NodeTransformer):
    """Functions as Triton itself names them."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        owner = ast.unparse(node.value)
        if owner == "tl_math" or (owner == "libdevice" and node.attr in _IN_TRITON):
            return ast.parse(f"tl.math.{node.attr}", mode="eval").body
        return node


def _plain(function: ast.FunctionDef, name: str) -> str:
    """The function without what Inductor needs of it."""
    function.name = name
    function.decorator_list = [ast.parse("triton.jit", mode="eval").body]
    _Translate().visit(function)
    while _without_unused(function):
        pass
    return ast.unparse(ast.fix_missing_locations(function))


def _without_unused(function: ast.FunctionDef) -> bool:
    """Leave out assignments to names that nothing reads; whether there were any."""
    read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    removed = False
    for owner in ast.walk(function):
        body = getattr(owner, "body", None)
        if not isinstance(body, list):
            continue
        kept = [node for node in body if (target := _assigned(node)) is None or target in read]
        removed |= len(kept) < len(body)
        body[:] = kept
    return removed


def _assigned(node: ast.AST) -> str | None:
    """The only name that a statement gives a value."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return None
