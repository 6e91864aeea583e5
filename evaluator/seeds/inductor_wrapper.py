"""Inductor's wrapper as a plain `forward`; see `evaluator.seeds.inductor`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from evaluator.seeds.inductor_kernels import Kernel, UnreadableError

_IGNORED = ("assert_size_stride", "assert_alignment", "args.clear", "torch.cuda.set_device")
_MOST_BLOCKS = 65535
"""Of the second and third axis of a grid."""
_SAME = ("copy_if_misaligned",)


def forward_of(module: ast.Module, kernels: dict[str, Kernel], answer: dict[str, Any]) -> str:
    """The source of `forward(self, …)`. Raises `UnreadableError`."""
    calls = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef) and node.name == "call"]
    if len(calls) != 1:
        raise UnreadableError("it has no call of its own")
    wrapper = _Wrapper(kernels, answer)
    lines = [line for node in _flat(calls[0].body) for line in wrapper.lines(node)]
    given = ", ".join(["self", *answer["inputs"]])
    body = _without_unused([*wrapper.given(), *lines])
    return f"def forward({given}):\n" + "\n".join(f"    {line}" for line in body)


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements, those inside of `with` included."""
    for node in body:
        if isinstance(node, ast.With):
            yield from _flat(node.body)
        else:
            yield node


class _Wrapper(ast.NodeTransformer):
    """Says every statement of the wrapper in plain torch and Triton."""

    def __init__(self, kernels: dict[str, Kernel], answer: dict[str, Any]) -> None:
        self._kernels, self._one = kernels, bool(answer["one"])
        self._weights, self._inputs = list(answer["weights"]), list(answer["inputs"])
        self._names: dict[str, str] = {}
        self._device = f"{self._inputs[0]}.device"

    def given(self) -> list[str]:
        """Lines that give weights short names."""
        return [f"{_short(name)} = {_attribute(name)}" for name in self._weights]

    def lines(self, node: ast.stmt) -> list[str]:
        """What becomes of one statement."""
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Name(id="args")):
                self._name([ast.unparse(name) for name in names])
                return []
            case ast.Delete() | ast.Pass():
                return []
            case ast.Return(value=ast.Tuple(elts=values)):
                shown = [ast.unparse(self.visit(value)) for value in values]
                return [f"return {shown[0]}" if self._one else f"return ({', '.join(shown)},)"]
            case ast.Expr(value=ast.Call(func=function) as call):
                return self._expression(ast.unparse(function), call)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return self._assignment(name, value)
        raise UnreadableError(f"its wrapper has a statement of another kind: {ast.unparse(node)[:60]}")

    def _name(self, arguments: list[str]) -> None:
        """Inductor leaves out what nothing uses, so names are `argN_1` by their place."""
        known = [*map(_short, self._weights), *self._inputs]
        for argument in arguments:
            place = re.fullmatch(r"arg(\d+)_1", argument)
            if place is None or int(place[1]) >= len(known):
                raise UnreadableError(f"its wrapper has an unknown argument: {argument}")
            self._names[argument] = known[int(place[1])]

    def _expression(self, function: str, call: ast.Call) -> list[str]:
        if function in _IGNORED:
            return []
        owner, _, method = function.rpartition(".")
        if method == "run" and owner in self._kernels:
            return self._launch(self._kernels[owner], call)
        return [ast.unparse(self.visit(call))]

    def _launch(self, kernel: Kernel, call: ast.Call) -> list[str]:
        values = [ast.unparse(self.visit(value)) for value in call.args]
        if len(values) != len(kernel.arguments):
            raise UnreadableError(f"{kernel.name} is launched with other arguments than it has")
        named = dict(zip(kernel.arguments, values, strict=True))
        axes = [
            f"triton.cdiv({named[f'{axis}numel']}, {kernel.blocks[f'{axis.upper()}BLOCK']})"
            for axis in kernel.grid
            if f"{axis}numel" in named
        ]
        if len(axes) < len(kernel.grid):  # the last axis takes what does not fit into the second
            axes = [axes[0], f"min({axes[1]}, {_MOST_BLOCKS})", f"triton.cdiv({axes[1]}, {_MOST_BLOCKS})"]
        blocks = [f"{block}={constant}" for block, constant in kernel.blocks.items()]
        given = ", ".join([*values, *blocks, f"num_warps={kernel.warps}"])
        grid = f"({', '.join(axes)}{',' if len(axes) == 1 else ''})"
        return [f"grid = {grid}", f"{kernel.name}[grid]({given})"]

    def _assignment(self, name: str, value: ast.expr) -> list[str]:
        text = ast.unparse(value)
        if name.startswith("raw_stream") or (isinstance(value, ast.Call) and ast.unparse(value.func) in _SAME):
            return []
        if text.endswith(".size()"):
            self._names[name] = ast.unparse(self.visit(value)).replace(".size()", ".shape")
            return []
        if isinstance(value, ast.Name) and value.id in self._names:
            self._names[name] = self._names[value.id]
            return []
        if re.fullmatch(r"buf\d+", name) and re.fullmatch(r"buf\d+", text):
            self._names[name] = self._names.get(text, text)  # the same memory under another name
            return []
        return [f"{name} = {ast.unparse(self.visit(value))}"]

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.parse(self._names.get(node.id, node.id), mode="eval").body

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = ast.unparse(node.func)
        node = ast.Call(
            self.visit(node.func),
            [self.visit(value) for value in node.args],
            [ast.keyword(one.arg, self.visit(one.value)) for one in node.keywords],
        )
        shown = [ast.unparse(value) for value in node.args]
        if function == "empty_strided_cuda":
            size, stride, dtype = shown
            return _parsed(f"torch.empty_strided({size}, {stride}, dtype={dtype}, device={self._device})")
        if function == "reinterpret_tensor":
            tensor, size, stride, offset = shown
            moved = "" if offset == "0" else f", {tensor}.storage_offset() + {offset}"
            return _parsed(f"torch.as_strided({tensor}, {size}, {stride}{moved})")
        if function.startswith("extern_kernels."):
            node.func = _parsed(f"torch.{function.removeprefix('extern_kernels.')}")
        elif function.startswith(("torch.ops.", "aten.")):
            raise UnreadableError(f"it calls {function}")
        return node


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _attribute(name: str) -> str:
    """How a weight is reached; numbers, as in `nn.Sequential`, are indices."""
    parts = [f"[{part}]" if part.isdigit() else f".{part}" for part in name.split(".")]
    return "self" + "".join(parts)


def _short(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _without_unused(lines: list[str]) -> list[str]:
    """Leave out names that no later line reads."""
    kept: list[str] = []
    for line in reversed(lines):
        name, sign, _ = line.partition(" = ")
        if sign and name.isidentifier() and not any(re.search(rf"\b{name}\b", later) for later in kept):
            continue
        kept.append(line)
    return kept[::-1]
