"""Which rows go to `test`: held-out ones always; with `--split-by task` whole tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from evaluator.errors import UsageError
from policy.types import Turn

TEST_SHARE = 0.2


def split_of(turn: Turn, drawn: frozenset[str]) -> str:
    """`train` or `test`; `drawn` are the tasks that `tasks_to_test` chose."""
    return "test" if turn.split == "held_out" or turn.task in drawn else "train"


def tasks_to_test(tasks: Iterable[str], held_out: set[str], share: float = TEST_SHARE) -> frozenset[str]:
    """Tasks that are to be tested on, so that no task is on both sides.

    Held-out tasks, with their turns in `train` runs, where there are any; else `share` of the tasks, at least one,
    by a hash of their names: the same tasks in every export. Raises UsageError for a single task.
    """
    if held_out:
        return frozenset(held_out)
    ranked = sorted(set(tasks), key=lambda task: hashlib.sha256(task.encode()).digest())
    if len(ranked) < 2:
        raise UsageError(
            f"--split-by task needs two tasks, and the runs have {' '.join(ranked) or 'none'}",
            "export runs of several tasks",
        )
    return frozenset(ranked[: max(1, min(len(ranked) - 1, round(share * len(ranked))))])
