"""flashinfer-bench: a definition (JSON) whose `reference` defines `run`, and its workloads as JSON lines.

Workloads stand in `workloads/…/NAME.jsonl` where the definition stands in `definitions/…/NAME.json`. Axes become
sizes, inputs are random. Kernels return their outputs; inputs kept in safetensors files are refused.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from evaluator import syntax
from evaluator.errors import TaskError
from evaluator.loaders.loading import Problem, module_task, read_source
from evaluator.types import Task, Workload

_MOST = 16
_FIX = "a definition has name, axes, inputs, outputs and reference"
_BOUND = """

import torch

{literals}


class Model(torch.nn.Module):
    def forward(self, *inputs):
        return run(*inputs)


def get_inputs():
    return [{inputs}]
"""


def problems(root: Path) -> list[Problem]:
    """Every definition beneath `root/definitions`. Raises `TaskError` where there is none."""
    found = [Problem(str(path.relative_to(root)), path.stem) for path in (root / "definitions").rglob("*.json")]
    if not found:
        raise TaskError(f"{root}: holds no definitions", "give the folder that holds definitions and workloads")
    return sorted(found)


def is_problem(place: str) -> bool:
    """Whether this is one definition."""
    return place.endswith(".json")


def load(place: str) -> Task:
    """The task of one definition's file. Raises `TaskError`."""
    path = Path(place)
    try:
        definition = json.loads(read_source(path))
        axes = {name: axis["value"] if axis["type"] == "const" else None for name, axis in definition["axes"].items()}
        specs = {name: (spec["shape"], str(spec["dtype"])) for name, spec in definition["inputs"].items()}
        reference, name = str(definition["reference"]), str(definition["name"])
        workloads = _workloads(path, specs)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TaskError(f"{path}: {type(error).__name__}: {error}", _FIX) from None
    first = workloads[0]["axes"]
    sizes = {axis: first[axis] if value is None else value for axis, value in axes.items() if value or axis in first}
    source = reference + _BOUND.format(
        literals="\n".join(f"{key} = {value!r}" for key, value in {**sizes, **_scalars(workloads[0])}.items()),
        inputs=", ".join(key if shape is None else _random(shape, dtype) for key, (shape, dtype) in specs.items()),
    )
    task = module_task(f"flashinfer_{name}", path, source, "mixed", str(definition.get("op_type", "")))
    timed = tuple(
        Workload(name=str(one.get("uuid", index))[:12], params={**sizes, **one["axes"], **_scalars(one)})
        for index, one in enumerate(workloads[:_MOST])
    )
    return task.model_copy(update={"workloads": timed})


def answer(place: str, text: str) -> str:
    """A solution (JSON) as a kernel of the task; outputs that it wants given are allocated. Raises `TaskError`."""
    try:
        solution, definition = json.loads(text), json.loads(read_source(Path(place)))
        (content,) = [str(file["content"]) for file in solution["sources"] if str(file["path"]).endswith(".py")]
        entry = str(solution["spec"]["entry_point"]).partition("::")[2]
        lines = _forward(definition, entry, _takes(content, entry))
    except (ValueError, TypeError, KeyError, AttributeError, SyntaxError) as error:
        cause = f"{type(error).__name__}: {error}"
        raise TaskError(f"a solution of {place}: {cause}", "spec, and sources with one Python file") from None
    head = f"    def forward(self, {', '.join(definition['inputs'])}):"
    body = "\n".join(["class ModelNew(torch.nn.Module):", head, *(f"        {line}" for line in lines)])
    return f"{content}\n\nimport torch\n\n\n{body}\n"


def _takes(content: str, entry: str) -> int:
    """How many arguments the entry point takes."""
    functions = [node for node in syntax.parse(content).body if isinstance(node, ast.FunctionDef)]
    (function,) = [node for node in functions if node.name == entry]
    return len(function.args.args) + len(function.args.kwonlyargs)


def _forward(definition: dict[str, Any], entry: str, takes: int) -> list[str]:
    """The lines of `forward`; a solution that takes the outputs too gets them allocated."""
    inputs, outputs = definition["inputs"], definition["outputs"]
    if takes < len(inputs) + len(outputs):
        return [f"return {entry}({', '.join(inputs)})"]
    lines = [f"{axis} = {one['value']}" for axis, one in definition["axes"].items() if one["type"] == "const"]
    for name, one in inputs.items():
        lines += [f"{axis} = {name}.shape[{place}]" for place, axis in enumerate(one["shape"] or ())]
    first = next(name for name, one in inputs.items() if one["shape"])
    for name, one in outputs.items():
        sizes = "".join(f"{axis}, " for axis in one["shape"])
        lines.append(f"{name} = torch.empty(({sizes}), dtype=torch.{one['dtype']}, device={first}.device)")
    return [*lines, f"{entry}({', '.join([*inputs, *outputs])})", f"return {', '.join(outputs)}"]


def _scalars(workload: dict[str, Any]) -> dict[str, Any]:
    return {key: one["value"] for key, one in workload["inputs"].items() if one["type"] == "scalar"}


def _random(shape: list[str], dtype: str) -> str:
    sizes = f"({', '.join(shape)}{',' if shape else ''})"
    if dtype == "bool":
        return f"torch.randint(0, 2, {sizes}).bool()"
    if dtype.startswith("int"):
        return f"torch.randint(0, 128, {sizes}, dtype=torch.{dtype})"
    return f"torch.randn({sizes}).to(torch.{dtype})"


def _workloads(path: Path, specs: dict[str, Any]) -> list[dict[str, Any]]:
    parts = list(path.parts)
    if "definitions" not in parts:
        raise TaskError(f"{path}: does not stand in a folder definitions", "PATH/definitions/OP/NAME.json")
    parts[len(parts) - 1 - parts[::-1].index("definitions")] = "workloads"
    place = Path(*parts).with_suffix(".jsonl")
    found = [json.loads(line) for line in read_source(place).splitlines() if line.strip()]
    workloads = [entry.get("workload", entry) for entry in found]
    for one in workloads:
        for name in specs:
            if one["inputs"].get(name, {}).get("type") not in ("random", "scalar"):
                raise TaskError(f"{place}: input {name} is neither random nor a scalar", "use another workload")
    if not workloads:
        raise TaskError(f"{place}: holds no workload", "one JSON object in each line")
    return workloads
