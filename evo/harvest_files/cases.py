"""Inputs, references and comparisons for the kernels of this folder. Needs torch alone.

`task/reference.py` says what is computed; a shape replaces the literals of its top-level assignments.
"""

from __future__ import annotations

import ast
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
FACTS: dict[str, Any] = json.loads((HERE / "harvest.json").read_text(encoding="utf-8"))
CHECKS: list[dict[str, Any]] = FACTS["check_shapes"]
"""Small shapes, each `{name, params}`."""
WORKLOADS: list[dict[str, Any]] = FACTS["workloads"]
"""The shapes that were timed."""
KERNELS: list[str] = [one["file"] for one in (*FACTS["elites"], *FACTS["specialists"])]


def kernel(file: str) -> Any:
    """The module of one kernel file of this folder; its `ModelNew` is the kernel."""
    if str(HERE.parent) not in sys.path:
        sys.path.insert(0, str(HERE.parent))
    return importlib.import_module(f"{HERE.name}.{file.removesuffix('.py')}")


def reference(params: dict[str, Any]) -> dict[str, Any]:
    """The names of `task/reference.py` at one shape: `Model`, `get_inputs`, `get_init_inputs`."""
    path = HERE / "task" / "reference.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in params:
            node.value = ast.Constant(params[node.targets[0].id])
    names: dict[str, Any] = {"__name__": "reference"}
    exec(compile(ast.fix_missing_locations(tree), str(path), "exec"), names)
    return names


def case(params: dict[str, Any], device: str, seed: int = 0) -> tuple[Any, list[Any], list[Any]]:
    """(the reference model, the arguments of its constructor, inputs) of one shape, on `device`."""
    names = reference(params)
    torch.manual_seed(seed)
    init = list(names["get_init_inputs"]()) if "get_init_inputs" in names else []
    model = names["Model"](*init).to(device).eval()
    moved = [value.to(device) if isinstance(value, torch.Tensor) else value for value in names["get_inputs"]()]
    return model, init, moved


def filled(made: Any, model: torch.nn.Module) -> Any:
    """A kernel's module with the reference's parameters and buffers wherever name and shape agree."""
    if isinstance(made, torch.nn.Module):
        given, held = model.state_dict(), made.state_dict()
        same = {name: value for name, value in given.items() if name in held and held[name].shape == value.shape}
        made.load_state_dict(same, strict=False)
        made.eval()
    return made


def build(file: str, model: torch.nn.Module, init: list[Any], device: str) -> Any:
    """The `ModelNew` of a kernel file, with the reference's weights."""
    with torch.device(device):
        return filled(kernel(file).ModelNew(*init), model)


def outputs(result: Any) -> list[torch.Tensor]:
    """What a model returned, as a list."""
    return list(result) if isinstance(result, tuple | list) else [result]


def difference(actual: Any, expected: Any) -> str:
    """What is wrong with `actual`; empty where it is right within the task's tolerance.

    |actual - expected| <= atol * min(1, rms(expected)) + rtol * |expected|
    """
    got, want = outputs(actual), outputs(expected)
    if len(got) != len(want):
        return f"{len(got)} outputs instead of {len(want)}"
    for number, (one, other) in enumerate(zip(got, want, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"output {number} is {one.dtype} {tuple(one.shape)}, not {other.dtype} {tuple(other.shape)}"
        exact, off = other.double(), (one.double() - other.double()).abs()
        scale = min(1.0, float(exact.square().mean().sqrt())) if exact.numel() else 1.0
        allowed = FACTS["tolerance"]["atol"] * scale + FACTS["tolerance"]["rtol"] * exact.abs()
        wrong = ~((off <= allowed) | (one == other))
        if bool(wrong.any()):
            return (
                f"output {number}: {int(wrong.sum())} of {wrong.numel()} values differ, by up to {float(off.max()):.4g}"
            )
    return ""
