"""What the controller itself costs: milliseconds and memory for each candidate, and how long a resume takes.

Candidates are judged and proposed by stand-ins that cost next to nothing, and the time spent in them is taken off: what
is left is the search (parents, novelty, archive, Optuna), the journal with its fsync, and the monitors. The same run is
then resumed from its journal.

    python -m benchmarks.controller --candidates 10000 --lines 100000
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import provenance
from evaluator.types import EvaluationJob, Evaluation
from evo.campaign import Campaign
from evo.config import CampaignConfig
from policy.types import Proposal, ProposalRequest
from tests.evo.fakes import FakeEvaluator, FakePolicy

RESULT = Path(__file__).parent / "results" / "controller.json"
LIMIT_MS = 5.0
LIMIT_RESUME_S = 10.0
EVERY = 1000
"""Candidates between two readings of clock and memory."""


class Stopwatch:
    """Seconds spent in the stand-ins."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def time(self, work: Callable[[], Any]) -> Any:
        """The result of `work`, its time added."""
        began = time.perf_counter()
        try:
            return work()
        finally:
            self.seconds += time.perf_counter() - began


class TimedEvaluator(FakeEvaluator):
    """The tests' evaluator; notes memory and the controller's time as candidates pass."""

    def __init__(self, watch: Stopwatch) -> None:
        super().__init__()
        self._watch = watch
        self._began = time.perf_counter()
        self.readings: list[dict[str, float]] = []

    def evaluate(self, jobs: Iterable[EvaluationJob]) -> Iterator[tuple[EvaluationJob, Evaluation]]:
        """Judge in order."""
        for job in jobs:
            evaluation = self._watch.time(lambda source=job.source: self._judge(source))
            self.judged.append(job.source.sha)
            if len(self.judged) % EVERY == 0:
                self.readings.append(self._reading())
            yield job, evaluation

    def _reading(self) -> dict[str, float]:
        own = time.perf_counter() - self._began - self._watch.seconds
        return {"candidates": len(self.judged), "controller_seconds": round(own, 3), "memory_mb": memory_mb()}


class TimedPolicy(FakePolicy):
    """The tests' policy, its time taken off."""

    def __init__(self, watch: Stopwatch) -> None:
        self._watch = watch

    def propose(self, requests: Sequence[ProposalRequest]) -> list[list[Proposal]]:
        """One child a request."""
        answers: list[list[Proposal]] = self._watch.time(lambda: FakePolicy.propose(self, requests))
        return answers


def memory_mb() -> float:
    """Resident memory of this process now, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 1e6, 1)
