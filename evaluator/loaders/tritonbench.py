"""TritonBench: `NAME.py`, an implementation and its tests split by a line of 146 `#`, or an entry of the JSON file.

Of TritonBench-T the implementation is torch, in the file or in an entry's `torch_code`, whose tests stand in the folder
beside the JSON file. Of TritonBench-G it is a Triton kernel, which is reference and seed at once. Every call that the
tests make is a workload; `forward` gets its arguments in the order of the signature, defaults included.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from evaluator import syntax
from evaluator.errors import TaskError
from evaluator.loaders.loading import Problem, module_task, read_source
from evaluator.nearest import nearest
from evaluator.types import Task, Workload

_LINE = "#" * 146
_MOST = 16
_BOUND = """

from evaluator.loaders import placed as _placed

import torch as _torch

call_number = 1
_TESTS = {tests!r}


class Model(_torch.nn.Module):
    def forward(self, *inputs):
        return _placed.call({entry}, *inputs)


def get_inputs():
    return _placed.recorded(globals(), {entry!r}, _TESTS)[call_number - 1]
"""
_ANSWER = """

import torch


class ModelNew(torch.nn.Module):
    def forward(self, *inputs):
        return {entry}(*inputs)
"""


def problems(root: Path) -> list[Problem]:
    """Every problem of a folder or a JSON file. Raises `TaskError` where there is none."""
    files = [str(entry["file"]) for entry in _entries(root)] if root.is_file() else [one.name for one in _files(root)]
    if not files:
        raise TaskError(f"{root}: holds no TritonBench problem", "give TritonBench_T_v1, TritonBench_G_v1 or the .json")
    return sorted(Problem(Path(name).stem, Path(name).stem) for name in files)


def is_problem(place: str) -> bool:
    """Whether this is one problem, and not a folder or a JSON file of them."""
    path = Path(place)
    return not path.is_dir() and path.suffix != ".json"


def load(place: str) -> Task:
    """The task of `FOLDER/NAME`, `FOLDER/NAME.py` or `FILE.json/NAME`. Raises `TaskError`."""
    path, code, tests = _read(place)
    entry = _entry(path, code, tests)
    source = code + _BOUND.format(tests=tests, entry=entry)
    calls = tuple(Workload(name=f"call {index}", params={"call_number": index}) for index in range(1, _MOST + 1))
    task = module_task(f"tritonbench_{path.stem}", path, source, "mixed", checks=calls)
    seed = code + _ANSWER.format(entry=entry) if "@triton.jit" in code else None
    return task.model_copy(update={"workloads": task.check_shapes, "seed_source": seed})


def answer(place: str, text: str) -> str:
    """An answer (the function that is asked for, tests behind it or not) as a kernel of the task."""
    path, code, tests = _read(place)
    return text.split(_LINE, maxsplit=1)[0] + _ANSWER.format(entry=_entry(path, code, tests))


def _read(place: str) -> tuple[Path, str, str]:
    """The file that holds the tests, the implementation and the tests."""
    given = Path(place)
    if given.parent.suffix == ".json":
        known = {Path(str(entry["file"])).stem: entry for entry in _entries(given.parent)}
        if given.stem not in known:
            raise TaskError(f"{given.parent}: holds no {given.stem}", nearest(given.stem, known))
        path = given.parent.with_suffix("") / str(known[given.stem]["file"])
        return path, str(known[given.stem]["torch_code"]), _parts(path)[1]
    path = given.with_suffix(".py")
    return path, *_parts(path)


def _parts(path: Path) -> tuple[str, str]:
    parts = read_source(path).split(_LINE)
    if len(parts) < 2:
        raise TaskError(f"{path}: no line of 146 # splits it into code and tests", "TritonBench's own files have one")
    return parts[0], parts[-1]


def _entries(path: Path) -> list[dict[str, Any]]:
    try:
        entries = json.loads(read_source(path))
        return [entry for entry in entries if entry["file"] and isinstance(entry["torch_code"], str)]
    except (ValueError, TypeError, KeyError) as error:
        cause = f"{type(error).__name__}: {error}"
        raise TaskError(f"{path}: {cause}", "a list of objects with file and torch_code") from None


def _files(root: Path) -> list[Path]:
    return [path for path in root.glob("*.py") if _LINE in path.read_text(encoding="utf-8", errors="replace")]


def _entry(path: Path, code: str, tests: str) -> str:
    """The name that the code defines and the tests call first."""
    try:
        defined = {node.name for node in syntax.parse(code).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        tree = syntax.parse(tests)
    except SyntaxError as error:
        raise TaskError(f"{path}:{error.lineno}: {error.msg}", "mend the syntax") from None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    called = sorted((node.lineno, node.func.id) for node in calls if isinstance(node.func, ast.Name))
    for _, name in called:
        if name in defined:
            return name
    raise TaskError(f"{path}: the tests call no function that the code defines", "use another problem")
