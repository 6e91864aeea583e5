"""What to expect of configs before they are measured, so that GPU time goes to the promising ones."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from evaluator.errors import KernevoError
from evaluator.protocol import Evaluator
from evaluator.types import EvaluationJob, KernelSource

LOG = logging.getLogger("kernevo.prior")

EXPLORED = 0.1
"""Share of what the prior would skip that is measured all the same: where the model errs, nothing else would tell."""

_STREAM = 0x7072696F


class Prior(Protocol):
    """Expects latencies."""

    def latencies(self, sources: Sequence[KernelSource]) -> list[float | None]:
        """Milliseconds, infinite for what cannot be built; None where nothing can be said."""
        ...

    def close(self) -> None:
        """Release workers; safe to call twice."""
        ...


class ModelPrior:
    """Expects what the cost model says. A model that cannot be used has nothing to say, which is logged once."""

    def __init__(self, make: Callable[[], Evaluator]) -> None:
        """`make` gives an evaluator of modelled latencies, when one is first needed."""
        self._make = make
        self._evaluator: Evaluator | None = None
        self._known: dict[str, float | None] = {}
        self._usable = True

    def latencies(self, sources: Sequence[KernelSource]) -> list[float | None]:
        """Milliseconds by the cost model, for each source in order."""
        missing = {source.sha: source for source in sources if source.sha not in self._known}
        if missing and self._usable:
            try:
                self._ask(list(missing.values()))
            except KernevoError as error:
                self._usable = False
                LOG.warning("tuning goes on without the cost model: %s", error.message)
        return [self._known.get(source.sha) for source in sources]

    def _ask(self, sources: Sequence[KernelSource]) -> None:
        if self._evaluator is None:
            self._evaluator = self._make()
        jobs = [EvaluationJob(job_id=source.sha, source=source) for source in sources]
        for job, found in self._evaluator.evaluate(jobs):
            unknown = found.status.blames_harness
            self._known[job.job_id] = None if unknown else found.latency_ms if found.status.passed else math.inf

    def close(self) -> None:
        """Stop the workers; safe to call twice."""
        if self._evaluator is not None:
            self._evaluator.close()
            self._evaluator = None


def preferred(latencies: Sequence[float | None], count: int, seed: int) -> list[int]:
    """Which `count` of the candidates to measure: the quickest, and a random tenth of the others in the last places.

    Those of which nothing is expected come first. Indices are in ascending order.
    """
    expected = [-1.0 if latency is None else latency for latency in latencies]
    order = sorted(range(len(expected)), key=lambda index: (expected[index], index))
    chosen, skipped = order[:count], order[count:]
    rng = np.random.default_rng((seed, _STREAM))
    explored = [index for index in skipped if rng.random() < EXPLORED][:count]
    return sorted([*chosen[: len(chosen) - len(explored)], *explored])
