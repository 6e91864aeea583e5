"""flashinfer-bench: a definition (JSON) whose `reference` defines `run`, and its workloads as JSON lines.

Workloads stand in `workloads/…/NAME.jsonl` where the definition stands in `definitions/…/NAME.json`. Axes become
sizes, inputs are random. Kernels return their outputs; inputs kept in safetensors files are refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evaluator.errors import TaskError
from evaluator.loaders.loading import module_task, read_source
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
