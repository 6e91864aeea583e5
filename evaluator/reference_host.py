"""What the judge knows of a task from elsewhere, found out in a process of its own; see `evaluator.reference_child`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from evaluator import child, wire
from evaluator.errors import TaskError
from evaluator.judge import Case, Shapes
from evaluator.types import Task

_MODULE = "evaluator.reference_child"


def cases(task: Task, seed: int) -> list[Case]:
    """`Judge.cases` of a task from elsewhere. Raises `TaskError`."""
    return [Case(**case) for case in _prepared(task.model_dump_json(), seed)["cases"]]


def shapes(task: Task, seed: int) -> dict[str, Shapes]:
    """`Judge.shapes` of every workload by its name. Raises `TaskError`."""
    found: dict[str, dict[str, Any]] = _prepared(task.model_dump_json(), seed)["shapes"]
    return {name: Shapes(**fields) for name, fields in found.items()}


def reasons(task: Task, target: str, seed: int) -> list[str]:
    """`quarantine.reasons` of a task from elsewhere. Raises `TaskError`."""
    found: list[str] = _asked(task.model_dump_json(), "reasons", seed, target)
    return found


@lru_cache(maxsize=4)
def _prepared(task: str, seed: int) -> dict[str, Any]:
    found: dict[str, Any] = _asked(task, "prepared", seed, "")
    return found


def _asked(task: str, command: str, seed: int, target: str) -> Any:
    origin = Task.model_validate_json(task).origin
    given = wire.dump({"task": task, "command": command, "seed": seed, "target": target})
    try:
        answer = wire.load(child.run(["-m", _MODULE], given, origin))
        refused = answer.get("refused")
        if refused is None:
            return answer["result"]
        message, hint = str(refused["message"]), str(refused["hint"])
    except (wire.WireError, KeyError, TypeError, AttributeError):
        raise TaskError(f"{origin}: running it gave no answer", "run the module by hand to see it") from None
    raise TaskError(message, hint)
