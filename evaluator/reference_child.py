"""Runs the reference of a task from elsewhere for the judge; a program of its own (`evaluator.reference_host`).

Reads one wire frame from stdin and writes one to stdout. What the reference prints goes nowhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from evaluator import wire
from evaluator.errors import KernevoError
from evaluator.judge import Judge
from evaluator.quarantine import reasons
from evaluator.types import Task


def _prepared(task: Task, seed: int, target: str) -> dict[str, Any]:
    """Cases, and the shapes of every workload."""
    judge = Judge(task, seed)
    return {
        "cases": [_fields(case) for case in judge.cases()],
        "shapes": {workload.name: _fields(judge.shapes(workload)) for workload in task.workloads},
    }


def _reasons(task: Task, seed: int, target: str) -> list[str]:
    return reasons(task, target, seed)


_COMMANDS: dict[str, Callable[[Task, int, str], Any]] = {"prepared": _prepared, "reasons": _reasons}


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def main() -> None:
    """Answer for the task on stdin."""
    given = wire.load(sys.stdin.buffer.read())
    out = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    task = Task.model_validate_json(given["task"]).model_copy(update={"foreign": False})  # it is run here
    try:
        answer = wire.dump({"result": _COMMANDS[given["command"]](task, given["seed"], given["target"])})
    except KernevoError as error:
        answer = wire.dump({"refused": {"message": error.message, "hint": error.hint}})
    except wire.WireError as error:
        message = f"{task.origin}: what kernels would be given cannot be sent to their process: {error}"
        answer = wire.dump({"refused": {"message": message, "hint": "give numbers, texts, tensors and lists of them"}})
    with open(out, "wb") as stream:
        stream.write(answer)


if __name__ == "__main__":
    main()
