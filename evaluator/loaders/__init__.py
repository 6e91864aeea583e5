"""Tasks in other people's formats, read as they are: `kernelbench:PATH/level1/24`, `file.py`, `file.py:function`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from evaluator.errors import UsageError
from evaluator.types import Task

SUITES = ("kernelbench", "robust_kbench", "tritonbench", "gpu_mode", "flashinfer")
"""One module here for each: `problems(root)`, `is_problem(place)`, `load(place)`, and `answer(place, text)` where
answers are no `ModelNew`."""


def is_foreign(spec: str) -> bool:
    """Whether `load` is the one to read this spec."""
    return _suite(spec) is not None or spec.rpartition(":")[0].endswith(".py") or spec.endswith(".py")


def load(spec: str) -> Task:
    """The task that a spec names; its module is run in another process. Raises `TaskError`."""
    if (suite := _suite(spec)) is not None:
        task: Task = suite.load(spec.partition(":")[2])
        return task
    from evaluator.loaders import module

    path, _, name = spec.rpartition(":") if not spec.endswith(".py") else (spec, "", "")
    return module.load(Path(path), name or "Model")


def is_suite(spec: str) -> bool:
    """Whether a spec names all problems of a suite: `kernelbench:PATH`."""
    suite = _suite(spec)
    return suite is not None and not suite.is_problem(spec.partition(":")[2])


def problems(spec: str, level: int | None = None) -> list[tuple[str, str]]:
    """(spec, name) of every problem of a suite. Raises `TaskError` where there is none, `UsageError` for no suite."""
    suite = _suite(spec)
    if suite is None:
        raise UsageError(f"{spec}: no suite", f"SUITE:PATH, where SUITE is {', '.join(SUITES)}")
    root = Path(spec.partition(":")[2])
    if level is not None and not spec.startswith("kernelbench:"):
        raise UsageError("--level: only KernelBench has levels", "leave it out")
    given = (root,) if level is None else (root, level)
    return [(f"{spec.rstrip('/')}/{found.place}", found.name) for found in suite.problems(*given)]


def as_kernel(spec: str, text: str) -> str:
    """An answer in the form of the task's suite as a file with `ModelNew`; one that has it already stays as it is."""
    suite = _suite(spec)
    if suite is None or not hasattr(suite, "answer") or "class ModelNew" in text:
        return text
    kernel: str = suite.answer(spec.partition(":")[2], text)
    return kernel


def _suite(spec: str) -> Any:
    name, colon, _ = spec.partition(":")
    return import_module(f"evaluator.loaders.{name}") if colon and name in SUITES else None
