"""GPU MODE: a folder with task.yml and the files that it names; `reference.py` has generate_input and ref_kernel.

Its benchmarks are the workloads, its tests the check shapes. What `generate_input` returns is given to `forward` item
by item where it is a tuple. Its seeds are drawn anew, and tensors made on "cuda" are made where the judge works.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evaluator.errors import TaskError, UsageError
from evaluator.loaders.loading import Problem, module_task, read_source
from evaluator.types import Task, Workload
from evaluator.yaml_reader import parse

_MOST = 16
_CHECKED = 4
_FIX = "task.yml names its files, and lists tests and benchmarks"
_BOUND = '''"""{description}"""

from evaluator.loaders.placed import call, drawn, modules

import torch

{literals}

_SOURCES = {sources!r}
_REFERENCE = modules(_SOURCES, "reference")


class Model(torch.nn.Module):
    def forward(self, *inputs):
        return call(_REFERENCE["ref_kernel"], inputs if len(inputs) > 1 else inputs[0])


def get_inputs():
    return drawn(_REFERENCE["generate_input"], {{{arguments}}})
'''
_ANSWER = """

import torch


class ModelNew(torch.nn.Module):
    def forward(self, *inputs):
        return custom_kernel(inputs if len(inputs) > 1 else inputs[0])
"""


def problems(root: Path) -> list[Problem]:
    """Every folder with a task.yml. Raises `TaskError` where there is none."""
    found = [Problem(str(path.parent.relative_to(root)), path.parent.name) for path in root.rglob("task.yml")]
    if not found:
        raise TaskError(f"{root}: holds no task.yml", "give a folder of GPU MODE's reference kernels")
    return sorted(found)


def is_problem(place: str) -> bool:
    """Whether this is one problem's folder."""
    return (Path(place) / "task.yml").is_file()


def load(place: str) -> Task:
    """The task of one folder. Raises `TaskError`."""
    folder = Path(place)
    document = _document(folder / "task.yml")
    sources = _sources(folder, document["files"])
    first = dict((document["benchmarks"] or document["tests"])[0])
    source = _BOUND.format(
        description=(str(document.get("description", "")).splitlines() or [folder.name])[0].replace('"', "'"),
        literals="\n".join(f"given_{name} = {value!r}" for name, value in first.items()),
        sources=sources,
        arguments=", ".join(f"{name!r}: given_{name}" for name in first),
    )
    path = folder / "reference.py"
    checks = _workloads("test", document["tests"] or document["benchmarks"], first)[:_CHECKED]
    task = module_task(f"gpu_mode_{folder.resolve().name}", path, source, "mixed", checks=checks)
    timed = _workloads("benchmark", document["benchmarks"] or document["tests"], first)[:_MOST]
    return task.model_copy(update={"workloads": timed})


def answer(place: str, text: str) -> str:
    """A submission (`custom_kernel(data)`) as a kernel of the task."""
    return text + _ANSWER


def _document(path: Path) -> dict[str, Any]:
    try:
        document = parse(read_source(path), str(path)).data
    except UsageError as error:
        raise TaskError(error.message, error.hint) from None
    if not isinstance(document, dict) or not isinstance(document.get("files"), list):
        raise TaskError(f"{path}: lists no files", _FIX)
    for name in ("tests", "benchmarks"):
        document[name] = document.get(name) or []
        if not isinstance(document[name], list) or not all(isinstance(one, dict) for one in document[name]):
            raise TaskError(f"{path}: {name} is no list of mappings", _FIX)
    if not document["tests"] and not document["benchmarks"]:
        raise TaskError(f"{path}: has neither tests nor benchmarks", _FIX)
    return document


def _sources(folder: Path, files: list[Any]) -> dict[str, str]:
    """Every Python file but the submission and the suite's own evaluation, `reference` last."""
    try:
        named = {Path(str(one["name"])).stem: str(one["source"]) for one in files if str(one["name"]).endswith(".py")}
    except (TypeError, KeyError):
        raise TaskError(f"{folder / 'task.yml'}: files have name and source", _FIX) from None
    left_out = ("submission", "eval", "reference")
    sources = {name: read_source(folder / place) for name, place in named.items() if name not in left_out}
    reference = read_source(folder / named.get("reference", "reference.py"))
    if "def ref_kernel" not in reference:
        cause = "defines no ref_kernel, only a check that kernels cannot be compared with"
        raise TaskError(f"{folder / 'reference.py'}: {cause}", "use a problem whose check compares with ref_kernel")
    # `utils` imports nothing of the others, `task` at most that.
    ordered = sorted(sources, key=lambda name: (name != "utils", name != "task", name))
    return {**{name: sources[name] for name in ordered}, "reference": reference}


def _workloads(kind: str, listed: list[dict[str, Any]], first: dict[str, Any]) -> tuple[Workload, ...]:
    """Those that give the same arguments as the first one."""
    same = [one for one in listed if one.keys() == first.keys()]
    return tuple(
        Workload(name=f"{kind} {index + 1}", params={f"given_{name}": value for name, value in one.items()})
        for index, one in enumerate(same)
    )
