"""Evaluator backends: `cpu` (interpreter and model) and `gpu` (measures)."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from evaluator.backends.cpu import CpuEvaluator
from evaluator.backends.gpu import GpuEvaluator
from evaluator.errors import UsageError
from evaluator.protocol import Evaluator
from evaluator.types import Task

BACKENDS: dict[str, Callable[[Task, Mapping[str, Any]], Evaluator]] = {
    "cpu": CpuEvaluator,
    "gpu": GpuEvaluator,
}


def create(config: Mapping[str, Any], task: Task) -> Evaluator:
    """The evaluator that `config["type"]` names, for one task. Raises `UsageError` for an unknown type."""
    name = str(config.get("type", "cpu"))
    if name not in BACKENDS:
        near = difflib.get_close_matches(name, BACKENDS, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"unknown evaluator type {name!r}", f"{hint}known types: {', '.join(sorted(BACKENDS))}")
    return BACKENDS[name](task, {key: value for key, value in config.items() if key != "type"})
