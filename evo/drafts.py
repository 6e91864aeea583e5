"""Judges drafts of a language model beside the campaign: on the CPU, one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable

from evaluator.protocol import Evaluator
from evaluator.types import Evaluation, EvaluationJob, KernelSource


class DraftEvaluator:
    """An evaluator that is made for the first draft. Any thread may call it; a draft waits for the one before."""

    def __init__(self, make: Callable[[], Evaluator]) -> None:
        self._make = make
        self._evaluator: Evaluator | None = None
        self._lock = threading.Lock()

    def judge(self, source: KernelSource) -> Evaluation:
        """The verdict on one draft. Raises KernevoError when the task or the machine is at fault."""
        with self._lock:
            if self._evaluator is None:
                self._evaluator = self._make()
            ((_, evaluation),) = self._evaluator.evaluate([EvaluationJob(job_id="draft", source=source)])
            return evaluation

    def close(self) -> None:
        """Stop the evaluator where there is one; safe to call twice."""
        with self._lock:
            if self._evaluator is not None:
                self._evaluator.close()
                self._evaluator = None
