"""Evaluators: `cpu` (interpreter and model) and `gpu` (measures), on this machine or on a Ray cluster."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from evaluator.backends.cpu import CpuEvaluator
from evaluator.backends.fleet import ALL, GpuFleet
from evaluator.backends.gpu import GpuEvaluator
from evaluator.errors import UsageError
from evaluator.protocol import Evaluator
from evaluator.types import Task


def _gpu(task: Task, settings: Mapping[str, Any]) -> Evaluator:
    """One GPU's evaluator; a fleet for several GPUs, and for all, which are not counted before they are needed."""
    device = settings.get("device", ALL)
    if isinstance(device, list | tuple) and len(device) == 1:
        (device,) = device
    if isinstance(device, int):
        return GpuEvaluator(task, {**settings, "device": device})
    return GpuFleet(task, settings)


BACKENDS: dict[str, Callable[[Task, Mapping[str, Any]], Evaluator]] = {
    "cpu": CpuEvaluator,
    "gpu": _gpu,
}


def create(config: Mapping[str, Any], task: Task, backend: Mapping[str, Any] | None = None) -> Evaluator:
    """The evaluator that `config["type"]` names, for one task, where `backend` says; left out: on this machine.

    Raises `UsageError` for an unknown type.
    """
    name = str(config.get("type", "cpu"))
    if name not in BACKENDS:
        near = difflib.get_close_matches(name, BACKENDS, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"unknown evaluator type {name!r}", f"{hint}known types: {', '.join(sorted(BACKENDS))}")
    if backend is not None and backend.get("type") == "ray":
        from evaluator.backends.ray import RayEvaluator

        return RayEvaluator(task, {**config, "type": name}, backend)
    return BACKENDS[name](task, {key: value for key, value in config.items() if key != "type"})
