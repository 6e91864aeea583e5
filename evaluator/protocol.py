"""The one interface between search and judge; `EvaluatorTestCase` checks that a backend keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from evaluator.types import Evaluation, EvaluationJob, Task


class Evaluator(Protocol):
    """Judges sources of one task.

    Thread safety: one caller at a time. Determinism: the same source gets the same verdict, and results are
    yielded in the order of the jobs, each as soon as it and all before it are ready, so that a search that
    replays them is repeatable. A job never raises: whatever a candidate does becomes a verdict, and a broken
    harness becomes `HARNESS_ERROR`.
    """

    @property
    def task(self) -> Task:
        """The task every job is judged on."""
        ...

    def evaluate(self, jobs: Iterable[EvaluationJob]) -> Iterator[tuple[EvaluationJob, Evaluation]]:
        """Judge `jobs`, several at once where the backend can, yielding in submission order."""
        ...

    def close(self) -> None:
        """Stop workers and remove temporary files; safe to call twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class Retimer(Protocol):
    """An evaluator that measures, and can measure again."""

    def retime(self, jobs: Iterable[EvaluationJob]) -> Iterator[tuple[EvaluationJob, Evaluation]]:
        """Like `evaluate`, but as thoroughly as the evaluator times anything, and never answered from memory."""
        ...
