"""Judged children in a file, one line each, and an evaluator that answers from it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from evaluator.types import EvalStatus, Evaluation, EvaluationJob, Frozen, KernelSource, Task
from policy.types import RewriteStep


class Measured(Frozen):
    """One judged source of one shipped task, at all its workloads."""

    task: str
    parent: str
    """Hash of the source it was made of; empty for a seed."""
    step: RewriteStep | None
    source: KernelSource
    evaluation: Evaluation


def slim(evaluation: Evaluation) -> Evaluation:
    """Without what rewards and prompts of children do not need."""
    profile = None if evaluation.profile is None else evaluation.profile.model_copy(update={"launches": {}})
    return evaluation.model_copy(update={"stages": (), "profile": profile})


def read(path: Path) -> list[Measured]:
    """All rows; of equal sources the last. A torn last line is left out."""
    if not path.is_file():
        return []
    text = content(path).decode()
    found: dict[tuple[str, str], Measured] = {}
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            row = Measured.model_validate(json.loads(line))
            found[row.task, row.source.sha] = row
    return list(found.values())


def content(path: Path) -> bytes:
    """What a file holds, unpacked."""
    raw = path.read_bytes()
    return gzip.decompress(raw) if path.suffix == ".gz" else raw


def cut_torn_line(path: Path) -> None:
    """So that the next row begins a line of its own."""
    if path.is_file():
        whole = path.read_bytes()
        path.write_bytes(whole[: whole.rfind(b"\n") + 1])


def append(path: Path, row: Measured) -> None:
    """Add one row."""
    with path.open("a", encoding="utf-8") as file:
        file.write(row.model_dump_json() + "\n")


class RecordedEvaluator:
    """Answers for one (task, shape) pair from what was measured; WORKER_LOST for a source that never was."""

    def __init__(self, task: Task, rows: Iterable[Measured]) -> None:
        """`task` is one of `pairs`, `rows` those of the shipped task it comes of."""
        self._task = task
        (self._workload,) = task.workloads
        self._known = {row.source.sha: row.evaluation for row in rows}

    @property
    def task(self) -> Task:
        """The pair."""
        return self._task

    def evaluate(self, jobs: Iterable[EvaluationJob]) -> Iterator[tuple[EvaluationJob, Evaluation]]:
        """Look every job up."""
        for job in jobs:
            yield job, self._look_up(job.source)

    def _look_up(self, source: KernelSource) -> Evaluation:
        found = self._known.get(source.sha)
        if found is None:
            return Evaluation(
                source_sha=source.sha,
                task=self._task.name,
                evaluator="recorded",
                status=EvalStatus.WORKER_LOST,
                reason="was never measured",
            )
        timings = {name: timing for name, timing in found.timings.items() if name == self._workload.name}
        return found.model_copy(update={"task": self._task.name, "timings": timings})

    def close(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held."""
