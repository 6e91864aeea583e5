"""Judges what the proof needs on a GPU: every child that one rewrite makes of a seed and of two of its children.

    python -m benchmarks.learning.measure [--tasks …] [--evaluator gpu|cpu] [--seconds 480] [--out FILE]

Those two are the fastest child and the one in the middle. Rows are written one by one; what FILE holds already is not
judged again, unless our own harness had failed, so a run that was stopped goes on. With `--evaluator cpu` latencies are
modelled, which is for trying the rest out only. Writes benchmarks/results/learning_measured.jsonl, beside it the
.provenance.json that says what judged (a call adds itself), and prints a table.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.common import provenance
from benchmarks.gpu_processes import shared_processes
from benchmarks.learning.arms import write
from benchmarks.learning.pairs import TASKS, every_child
from benchmarks.learning.records import Measured, append, cut_torn_line, read, slim
from evaluator.backends import create
from evaluator.protocol import Evaluator
from evaluator.task import load_task
from evaluator.types import EvaluationJob, KernelSource, Task
from policy.types import RewriteStep

RESULT = Path(__file__).parents[1] / "results" / "learning_measured.jsonl"
Made = tuple[str, RewriteStep | None, KernelSource]
"""Parent's hash, answer, child."""


class Book:
    """The rows, in memory and in the file. Thread-safe."""

    def __init__(self, path: Path, until: float) -> None:
        cut_torn_line(path)
        self._path, self._until = path, until
        self._lock = threading.Lock()
        self.rows = {(row.task, row.source.sha): row for row in read(path)}

    def judge(self, evaluator: Evaluator, made: Sequence[Made]) -> None:
        """Judge those that are new, until the time is up."""
        task = evaluator.task.name
        new = {source.sha: (parent, step, source) for parent, step, source in made}
        jobs = [
            EvaluationJob(job_id=sha, source=source)
            for sha, (_, _, source) in new.items()
            if (task, sha) not in self.rows or self.rows[task, sha].evaluation.status.blames_harness
        ]
        if time.monotonic() >= self._until:
            return
        for job, evaluation in evaluator.evaluate(jobs):
            parent, step, source = new[job.job_id]
            row = Measured(task=task, parent=parent, step=step, source=source, evaluation=slim(evaluation))
            with self._lock:
                self.rows[task, source.sha] = row
                append(self._path, row)
            print(f"{task} {step.name if step else 'seed'}: {evaluation.status}", file=sys.stderr, flush=True)
            if time.monotonic() >= self._until:
                return


def parents(task: Task, rows: Mapping[tuple[str, str], Measured]) -> list[KernelSource]:
    """The fastest and the middle one of the seed's children that passed."""
    assert task.seed_source is not None
    seed = KernelSource(text=task.seed_source).sha
    own = [row for row in rows.values() if row.task == task.name and row.parent == seed]
    passed = sorted((row for row in own if row.evaluation.speedup), key=lambda row: -(row.evaluation.speedup or 0.0))
    chosen = [*passed[:1], *passed[len(passed) // 2 :][:1]]
    return list({row.source.sha: row.source for row in chosen}.values())


def measure(name: str, settings: Mapping[str, Any], book: Book) -> None:
    """Everything of one task."""
    task = load_task(name)
    assert task.seed_source is not None
    seed = KernelSource(text=task.seed_source)
    with create(settings, task) as evaluator:
        first: list[Made] = [(seed.sha, step, child) for step, child in every_child(task, seed.text)]
        book.judge(evaluator, [("", None, seed), *first])
        for parent in parents(task, book.rows):
            book.judge(evaluator, [(parent.sha, step, child) for step, child in every_child(task, parent.text)])


def note_provenance(out: Path) -> None:
    """Add this call to what made the rows: several calls, also of other commits, may fill one file."""
    path = out.with_suffix(".provenance.json")
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    write(path, {**known, f"call {len(known) + 1}": provenance("-m benchmarks.learning.measure")})


def main() -> int:
    """Measure, print what there is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--evaluator", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--at-once", type=int, default=2, help="tasks at once; each has workers of its own")
    parser.add_argument("--workers", type=int, help="candidates at once of each task")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin nothing new after so many seconds")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    settings: dict[str, Any] = {"type": options.evaluator, "cache": False, "timeout_s": 60.0}
    if options.evaluator == "gpu":
        settings |= {"baseline": "eager", "timing": "screen", "duplicates": "judge"}
        settings |= {"allow_busy": options.at_once > 1}  # with ourselves
    if options.workers:
        settings["workers"] = options.workers
    note_provenance(options.out)
    book = Book(options.out, time.monotonic() + options.seconds)
    with shared_processes(settings, options.at_once), ThreadPoolExecutor(options.at_once) as pool:
        list(pool.map(lambda name: measure(name, settings, book), options.tasks))
    for name in options.tasks:
        rows = [row for row in book.rows.values() if row.task == name]
        best = max((row.evaluation.speedup or 0.0 for row in rows), default=0.0)
        verdicts = dict(Counter(str(row.evaluation.status) for row in rows))
        print(f"{name:>14}: {len(rows)} judged, best {best:.3f}x, {verdicts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
