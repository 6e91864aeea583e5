"""Tasks in other people's formats, read as they are: `kernelbench:PATH/level1/24`, `file.py`, `file.py:function`."""

from __future__ import annotations

from pathlib import Path

from evaluator.types import Task

PREFIXES = ("kernelbench:", "robust_kbench:", "flashinfer:")


def is_foreign(spec: str) -> bool:
    """Whether `load` is the one to read this spec."""
    return spec.startswith(PREFIXES) or spec.rpartition(":")[0].endswith(".py") or spec.endswith(".py")


def load(spec: str) -> Task:
    """The task that a spec names; its module is run in another process. Raises `TaskError`."""
    from evaluator.loaders import flashinfer, kernelbench, module, robust_kbench

    suites = {"kernelbench": kernelbench.load, "robust_kbench": robust_kbench.load, "flashinfer": flashinfer.load}
    suite, _, place = spec.partition(":")
    if suite in suites:
        return suites[suite](place)
    path, _, name = spec.rpartition(":") if not spec.endswith(".py") else (spec, "", "")
    return module.load(Path(path), name or "Model")
