"""What the controller itself costs: milliseconds and memory for each candidate, and how long a resume takes.

Candidates are judged and proposed by stand-ins that cost next to nothing, and the time spent in them is taken off: what
is left is the search (parents, novelty, archive, Optuna), the journal with its fsync, and the monitors. Then a made-up
journal of a longer run (`benchmarks/long_journal.py`) is replayed.

    python -m benchmarks.controller --candidates 10000
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import evaluator as evaluator_package
from benchmarks import long_journal
from benchmarks.common import provenance
from evaluator.types import Evaluation, EvaluationJob, KernelSource
from evo.campaign import Campaign
from evo.config import CampaignConfig
from policy.types import Proposal, ProposalRequest, RewriteStep
from tests.evo.fakes import SEED, FakeEvaluator, FakePolicy, variant

RESULT = Path(__file__).parent / "results" / "controller.json"
LIMIT_MS = 5.0
RESUME_LIMIT_S = 10.0
EVERY = 1000
"""Candidates between two readings of clock and memory."""


class Stopwatch:
    """Seconds spent in the stand-ins, by the clock and of the processor."""

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = 0.0

    def time(self, work: Callable[[], Any]) -> Any:
        """The result of `work`, its time added."""
        began, busy = time.perf_counter(), time.process_time()
        try:
            return work()
        finally:
            self.cpu_seconds += time.process_time() - busy
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
    """The tests' policy with fractions for steps, so that it never runs out of new structures; its time taken off."""

    def __init__(self, watch: Stopwatch) -> None:
        self._watch = watch

    def _child(self, request: ProposalRequest) -> Proposal:
        parent = request.parents[0].source.text
        known = variant(parent)
        step = round(random.Random(request.seed).uniform(-1.0, 3.0), 9)
        text = parent.replace(f"VARIANT = {known!r}", f"VARIANT = {(*known, step)!r}")
        steps = (RewriteStep(name="grow", args={"step": step}),)
        return Proposal(source=KernelSource(text=text), operator=request.operator, rewrites=steps, policy=self.name)

    def propose(self, requests: Sequence[ProposalRequest]) -> list[list[Proposal]]:
        """One child a request."""
        answers: list[list[Proposal]] = self._watch.time(lambda: FakePolicy.propose(self, requests))
        return answers


def memory_mb() -> float:
    """Resident memory of this process now, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 1e6, 1)


class Restored(Campaign):
    """A campaign that notes how long the replay of its journal takes."""

    restore_seconds = 0.0

    def _restore(self) -> None:
        began = time.perf_counter()
        super()._restore()
        self.restore_seconds = time.perf_counter() - began
        raise ReplayedError


class ReplayedError(Exception):
    """The journal was replayed: what would come next is not timed."""


def task_folder(parent: Path) -> Path:
    """The softmax task with the tests' seed, which the stand-ins can climb from."""
    folder = parent / "task"
    shutil.copytree(Path(evaluator_package.__file__).parent / "tasks" / "softmax", folder)
    (folder / "seed.py").write_text(SEED)
    return folder


def config_of(task: Path, candidates: int) -> CampaignConfig:
    """The default search on the stand-ins' task."""
    return CampaignConfig.model_validate(
        {"task": str(task), "seed": 0, "evaluator": {"type": "cpu"}, "budget": {"evaluations": candidates}}
    )


def timed_run(path: Path, task: Path, candidates: int) -> dict[str, Any]:
    """Milliseconds and memory for each candidate of one run."""
    watch = Stopwatch()
    evaluator = TimedEvaluator(watch)
    made = Campaign(config_of(task, candidates), path, evaluator=evaluator, policy=TimedPolicy(watch))
    began, busy = time.perf_counter(), time.process_time()
    made.run()
    busy = time.process_time() - busy - watch.cpu_seconds
    own = time.perf_counter() - began - watch.seconds
    first, last = evaluator.readings[0], evaluator.readings[-1]
    thousands = (last["candidates"] - first["candidates"]) / 1000
    judged = len(evaluator.judged)  # fewer than asked for where the search ran dry
    return {
        "candidates": judged,
        "controller_ms": own / judged * 1e3,
        "processor_ms": busy / judged * 1e3,
        "memory_mb_per_1000": (last["memory_mb"] - first["memory_mb"]) / thousands if thousands else 0.0,
        "readings": evaluator.readings,
    }


def timed_resume(path: Path) -> dict[str, Any]:
    """Seconds until a run could go on: its journal read, checked and replayed; and what the replay adds to memory."""
    with (path / "journal.jsonl").open("rb") as lines:
        count = sum(1 for _ in lines)
    memory, began = memory_mb(), time.perf_counter()
    resumed = Restored.resume(path, evaluator=FakeEvaluator(), policy=FakePolicy())
    reading = time.perf_counter() - began
    with contextlib.suppress(ReplayedError):
        resumed.run()
    return {
        "journal_lines": count,
        "resume_seconds": reading + resumed.restore_seconds,
        "resume_memory_mb": round(memory_mb() - memory, 1),
    }


def main() -> int:
    """Run, resume, write the result. Returns 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=10_000, help="candidates of the timed run, 1000 at least")
    parser.add_argument("--lines", type=int, default=100_000, help="lines of the journal that is resumed")
    parser.add_argument("--out", type=Path, default=RESULT, help="where the result goes")
    asked = parser.parse_args()
    before = provenance("-m benchmarks.controller")
    with tempfile.TemporaryDirectory(prefix="kernevo-controller-") as folder:
        task, run = task_folder(Path(folder)), Path(folder) / "run"
        result = {**before, **timed_run(run, task, asked.candidates)}
        long = Path(folder) / "long"
        long_journal.write(long, config_of(task, asked.lines), asked.lines)
        result |= timed_resume(long)
    result |= {"limit_ms": LIMIT_MS, "resume_limit_s": RESUME_LIMIT_S}
    asked.out.write_text(json.dumps(result, indent=2) + "\n")
    print(
        f"controller  {result['controller_ms']:.2f} ms a candidate ({result['processor_ms']:.2f} ms of the processor), "
        f"limit {LIMIT_MS:g}"
    )
    print(f"memory      {result['memory_mb_per_1000']:.1f} MB for each 1000 candidates")
    print(f"resume      {result['resume_seconds']:.1f} s for {result['journal_lines']} lines of journal")
    return 0 if result["controller_ms"] <= LIMIT_MS and result["resume_seconds"] <= RESUME_LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
