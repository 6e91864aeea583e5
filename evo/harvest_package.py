"""What makes a harvest a folder that a colleague can drop into a codebase, or install with pip.

Beside the kernels: the task (`task/`), a test, a benchmark, an operator for PyTorch, and a table that says which kernel
was best at which shape. The Python files are the same in every harvest (`evo/harvest_files/`): they read
`harvest.json`, need torch and triton, and nothing of Kernevo.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

import yaml

from evaluator.task import FROM_FILES, list_tasks
from evaluator.types import Task
from evo.candidate import Record
from evo.run import Run

GAIN = 1.02
"""A kernel is another than the best at a shape only where it is at least so many times as fast there."""
FILES = ("cases.py", "test_kernels.py", "benchmark.py")
OPERATOR = "torch_op.py"
NAMESPACE = "kernevo"
_SPDX = re.compile(r"SPDX-License-Identifier:\s*([\w.+() -]{1,60})")
_TENSOR = ("Tensor", "torch.Tensor")
_SCALARS = ("int", "float", "bool", "str")


def specialists(records: Iterable[Record], best: Record) -> dict[str, Record]:
    """Workload -> the correct candidate that is fastest there, where that is another than the best by `GAIN`."""
    found: dict[str, Record] = {}
    passed = [record for record in records if record.passed]
    for workload, timing in best.evaluation.timings.items():
        rivals = [record for record in passed if workload in record.evaluation.timings]
        fastest = min(rivals, key=lambda record: record.evaluation.timings[workload].median_ms, default=best)
        took = fastest.evaluation.timings[workload].median_ms if rivals else math.inf
        if took * GAIN <= timing.median_ms and fastest.candidate.ast_hash != best.candidate.ast_hash:
            found[workload] = fastest
    return found


def table(task: Task, best: Record, others: Mapping[str, Record], files: Mapping[str, str]) -> list[dict[str, Any]]:
    """The dispatch by shape: a row for each workload. `files` are the files' names by candidate."""
    rows = []
    for workload in task.workloads:
        owner = others.get(workload.name, best)
        timing = owner.evaluation.timings.get(workload.name)
        if timing is None:
            continue
        overall = best.evaluation.timings[workload.name].median_ms
        rows.append(
            {
                "workload": workload.name,
                "params": dict(workload.params),
                "file": files[owner.id],
                "config": dict(owner.candidate.config),
                "median_ms": timing.median_ms,
                "best_overall_ms": overall,
                "timing_kind": timing.kind,
            }
        )
    return rows


def task_facts(task: Task) -> dict[str, Any]:
    """What the test and the benchmark read of a task."""
    return {
        "tolerance": task.tolerance.model_dump(),
        "check_shapes": [{"name": one.name, "params": dict(one.params)} for one in task.check_shapes],
        "workloads": [{"name": one.name, "params": dict(one.params)} for one in task.workloads],
    }


def operator_of(task: Task, source: str, stem: str) -> dict[str, str] | None:
    """Name and schema of the operator; None where the signatures do not say enough for one."""
    forward, kernel = _method(task.reference_source, "Model"), _class(source, "ModelNew")
    if forward is None or kernel is None or not any("Module" in ast.unparse(base) for base in kernel.bases):
        return None
    arguments = forward.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults:
        return None
    given = [_type(argument.annotation) for argument in arguments.args[1:]]
    returned = _returned(forward.returns)
    if None in given or returned is None:
        return None
    words = [f"{kind} {argument.arg}" for kind, argument in zip(given, arguments.args[1:], strict=True)]
    name = re.sub(r"\W", "_", stem, flags=re.ASCII).strip("_").lower() or "kernel"
    return {
        "name": f"{NAMESPACE}::{name}",
        "schema": f"({', '.join(['Tensor[] state', 'str init', *words])}) -> {returned}",
    }


def _class(source: str, name: str) -> ast.ClassDef | None:
    return next((n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == name), None)


def _method(source: str, name: str) -> ast.FunctionDef | None:
    owner = _class(source, name)
    methods = owner.body if owner else []
    return next((n for n in methods if isinstance(n, ast.FunctionDef) and n.name == "forward"), None)


def _type(annotation: ast.expr | None) -> str | None:
    """A schema's word for an argument; what has no annotation is taken for a tensor."""
    text = "Tensor" if annotation is None else ast.unparse(annotation)
    if text in _TENSOR:
        return "Tensor"
    return text if text in _SCALARS else None


def _returned(annotation: ast.expr | None) -> str | None:
    if not (isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) in ("tuple", "Tuple")):
        return "Tensor" if _type(annotation) == "Tensor" else None
    parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    kinds = [_type(part) for part in parts]
    return f"({', '.join(['Tensor'] * len(kinds))})" if set(kinds) == {"Tensor"} else None


def licence_of(run: Run, source: str) -> str:
    """The licence of the kernel that a lineage began with, as far as its text or its task says."""
    if stated := _SPDX.search(source):
        return stated[1].strip()
    if run.config.task in list_tasks() and run.config.first_kernel is None:
        return "Apache-2.0 (seed shipped with Kernevo)"
    return "not stated by the seed; that of its task's owner"


def text_files(task: Task, facts: Mapping[str, Any], package: str, kernels: Sequence[str]) -> dict[str, str]:
    """Every file beside the kernels and harvest.json, by its path in the folder."""
    shipped = resources.files("evo").joinpath("harvest_files")
    names = [*FILES, *([OPERATOR] if facts["operator"] else [])]
    files = {name: shipped.joinpath(name).read_text(encoding="utf-8") for name in names}
    files["task/reference.py"] = task.reference_source
    files["task/task.yaml"] = yaml_of(task)
    if task.seed_source is not None:
        files["task/seed.py"] = task.seed_source
    files["__init__.py"] = _init(kernels[0], bool(facts["operator"]))
    files["pyproject.toml"] = _pyproject(package)
    files["README.md"] = _readme(facts, package, kernels)
    return files


def yaml_of(task: Task) -> str:
    """A task's `task.yaml`: read again it gives the same verdicts."""
    fields = task.model_dump(mode="json", exclude=FROM_FILES, exclude_none=True)
    return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=110)


def _init(best: str, operator: bool) -> str:
    """Imports nothing before it is asked for: a test sets TRITON_INTERPRET first, which Triton reads once."""
    names = {"ModelNew": best.removesuffix(".py")} | ({"KernelOp": "torch_op", "op": "torch_op"} if operator else {})
    lines = [f'    "{name}": "{module}",' for name, module in names.items()]
    return _INIT.replace("    NAMES", "\n".join(lines))


_INIT = '''"""Kernels that Kernevo found; README.md says how they are used."""

import importlib

_NAMES = {
    NAMES
}


def __getattr__(name):
    if name not in _NAMES:
        raise AttributeError(name)
    return getattr(importlib.import_module(f".{_NAMES[name]}", __name__), name)
'''


def _pyproject(package: str) -> str:
    return f"""# Built by `pip install .`
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{package.replace("_", "-")}"
version = "1.0.0"
description = "GPU kernels found by Kernevo"
requires-python = ">=3.11"
dependencies = ["torch", "triton"]

[tool.hatch.build.targets.wheel]
include = ["*.py", "harvest.json", "README.md", "task/*"]

[tool.hatch.build.targets.wheel.sources]
"" = "{package}"
"""


def _readme(facts: Mapping[str, Any], package: str, kernels: Sequence[str]) -> str:
    lines = [
        f"# {package}",
        "",
        "Kernels that Kernevo found; their first lines say how fast they are and where from.",
        "",
    ]
    lines += ["| file | use |", "|---|---|"]
    lines += [f"| `{name}` | `ModelNew`, a module in place of the reference's `Model` |" for name in kernels]
    if facts["operator"]:
        name = facts["operator"]["name"].replace("::", ".")
        lines += [
            f"| `torch_op.py` | `KernelOp(*arguments)`: the same behind `torch.ops.{name}`, by shape; forward only |"
        ]
    lines += [
        "| `harvest.json` | all facts; `dispatch` says which kernel with which config was best at which shape |",
        "| `test_kernels.py` | `pytest .`: every kernel against `task/reference.py`, without a GPU too |",
        "| `benchmark.py` | `python benchmark.py`: times them on a GPU |",
        "| `task/` | what is computed, at which shapes, how exactly |",
        "",
        f"Copy the folder into a package, or `pip install .` and `import {package}`. It needs torch and triton.",
        "`kernevo verify .` judges every kernel again.",
        "",
    ]
    return "\n".join(lines)
