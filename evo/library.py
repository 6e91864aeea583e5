"""The library: correct kernels of many runs in one SQLite file, found by words and used as seeds.

A kernel is here as its run judged it: the best config of each of a run's `KEPT` best structures, with its source, its
verdict, its speedup with interval, what hardware it was measured on or modelled for, and how it came about. Adding a
run again replaces what the library holds of it.

The file is derived: `evo.library_file` sees to two writers, damage and older versions, and builds it anew.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from evaluator.errors import UsageError
from evaluator.types import Evaluation, Frozen, Split, Timing, TimingKind, geometric_mean
from evo.candidate import Record
from evo.harvest import versions_of
from evo.library_file import reading, writing
from evo.run import Run
from policy.tools.kernel_library import LibraryKernel, source_words
from policy.tools.ranking import words
from policy.types import RewriteStep

KEPT = 100
"""Structures of one run at most, the fastest first."""
SHOWN = 50
"""Kernels of one task that a model's search looks through at most."""
MANY = 2**31
ID_DIGITS = 12


class Kernel(Frozen):
    """One judged kernel of the library."""

    id: str
    """Twelve hexadecimal digits; follows from run and candidate."""
    task: str
    task_fingerprint: str
    split: Split
    verdict: str
    checks_passed: int
    checks_total: int
    speedup: float | None
    """Geometric mean over workloads of baseline/candidate; None without a baseline."""
    speedup_low: float | None
    """Ends of its 95 % interval; None where a workload has none, as modelled ones have."""
    speedup_high: float | None
    latency_ms: float
    kind: TimingKind
    target: str
    """GPU that the latencies were measured on or modelled for."""
    timings: Mapping[str, Timing]
    """By workload."""
    evaluator_version: str
    versions: Mapping[str, str]
    run: str
    """Folder of the run."""
    candidate: str
    operator: str
    rewrites: tuple[RewriteStep, ...]
    """Its rewrite history from the run's seed."""
    policy: str
    structure: str
    ast_hash: str
    source_sha: str


class Found(Frozen):
    """A kernel with its source."""

    kernel: Kernel
    source: str


def add(path: Path, runs: Sequence[Run]) -> int:
    """Put what is best of each run into the library at `path`, which is made where it is missing.

    Returns how many kernels were added. Waits for another writer. Raises UsageError for a file that is no library,
    EnvironmentUnusableError where it cannot be written.
    """
    with writing(path, [run.path for run in runs], insert) as database:
        return sum(insert(database, run) for run in runs)


def insert(database: sqlite3.Connection, run: Run) -> int:
    """Replace what a library's open database holds of a run; returns how many kernels that is now."""
    folder = str(run.path.resolve())
    database.execute("DELETE FROM words WHERE rowid IN (SELECT number FROM kernels WHERE run = ?)", (folder,))
    database.execute("DELETE FROM kernels WHERE run = ?", (folder,))
    elites = run.elites(KEPT)
    for record in elites:
        _insert_kernel(database, _kernel(run, record), run.source(record.candidate.source_sha).text)
    database.execute("DELETE FROM sources WHERE sha NOT IN (SELECT sha FROM kernels)")
    return len(elites)


def _insert_kernel(database: sqlite3.Connection, kernel: Kernel, source: str) -> None:
    # SQLite's text is valid Unicode; a candidate's may be not.
    encoded = source.encode("utf-8", "surrogatepass")
    database.execute("INSERT OR IGNORE INTO sources VALUES (?, ?)", (kernel.source_sha, encoded))
    row = database.execute(
        "INSERT INTO kernels (id, run, task, sha, facts) VALUES (?, ?, ?, ?, ?)",
        (kernel.id, kernel.run, kernel.task, kernel.source_sha, kernel.model_dump_json()),
    )
    steps = " ".join(step.name for step in kernel.rewrites)
    known = [*words(f"{kernel.task} {kernel.operator} {steps}"), *source_words(source)]
    text = " ".join(known).encode("utf-8", "replace").decode()
    database.execute("INSERT INTO words (rowid, body) VALUES (?, ?)", (row.lastrowid, text))


def _kernel(run: Run, record: Record) -> Kernel:
    candidate, evaluation = record.candidate, record.evaluation
    folder = str(run.path.resolve())
    kind, latency = evaluation.kind, evaluation.latency_ms
    assert kind is not None
    assert latency is not None  # elites have passed
    low, high = _interval(evaluation)
    return Kernel(
        id=hashlib.sha256(json.dumps([folder, candidate.id]).encode()).hexdigest()[:ID_DIGITS],
        task=run.started.task,
        task_fingerprint=run.started.task_fingerprint,
        split=run.started.split,
        verdict=str(evaluation.status),
        speedup=record.speedup,
        speedup_low=low,
        speedup_high=high,
        latency_ms=latency,
        kind=kind,
        versions=versions_of(run),
        run=folder,
        candidate=candidate.id,
        **{name: getattr(evaluation, name) for name in _OF_EVALUATION},
        **{name: getattr(candidate, name) for name in _OF_CANDIDATE},
    )


_OF_EVALUATION = ("checks_passed", "checks_total", "target", "timings", "evaluator_version")
_OF_CANDIDATE = ("operator", "rewrites", "policy", "structure", "ast_hash", "source_sha")


def _interval(evaluation: Evaluation) -> tuple[float | None, float | None]:
    """Geometric means over workloads of both ends, which is wider than the interval of the mean."""
    ends = [(timing.ratio_low, timing.ratio_high) for timing in evaluation.timings.values()]
    lows, highs = [low for low, _ in ends if low], [high for _, high in ends if high]
    if not len(lows) == len(highs) == len(ends) > 0:
        return None, None
    return geometric_mean(lows), geometric_mean(highs)


def search(path: Path, query: str, limit: int, task: str | None = None, hardware: str | None = None) -> list[Found]:
    """At most `limit` kernels that share a word with `query`, best match first (BM25); without a query, the fastest.

    An identifier counts as a whole and by its parts. `hardware` is any part of the GPU's name. One program that several
    runs judged alike is shown once, as it was judged last. Raises UsageError where there is no library.
    """
    asked = " OR ".join(f'"{word}"' for word in dict.fromkeys(words(query)))
    if asked:
        matching = "JOIN words ON words.rowid = number WHERE words MATCH ? ORDER BY rank, number DESC"
        found = _read(path, matching, (asked,))
    elif query.strip():
        return []
    else:
        found = sorted(_read(path, "ORDER BY number DESC", ()), key=lambda one: -(one.kernel.speedup or 0.0))
    wanted = (one for one in found if task in (None, one.kernel.task) and _on(one.kernel, hardware))
    return _distinct(wanted)[:limit]


def _on(kernel: Kernel, hardware: str | None) -> bool:
    return hardware is None or hardware.lower() in kernel.target.lower()


def _distinct(found: Iterable[Found]) -> list[Found]:
    first: dict[tuple[str, ...], Found] = {}
    for one in found:
        kernel = one.kernel
        key = (kernel.source_sha, kernel.task, kernel.task_fingerprint, kernel.kind, kernel.target)
        first.setdefault(key, one)
    return list(first.values())


def of_task(path: Path, task: str) -> list[Found]:
    """Every kernel of a task, the latest first. Raises UsageError where there is no library."""
    return _read(path, "WHERE task = ? ORDER BY number DESC", (task,))


def for_tools(path: Path) -> list[LibraryKernel]:
    """What a model may look up: the `SHOWN` fastest kernels of each task, of no held-out run; none without a file."""
    if not path.exists():
        return []
    shown: dict[str, list[LibraryKernel]] = {}
    for one in search(path, "", MANY):
        about = one.kernel
        kernels = shown.setdefault(about.task, [])
        if about.split == "train" and len(kernels) < SHOWN:
            name = f"{about.candidate} of {Path(about.run).name} for {about.target}"
            kernels.append(
                LibraryKernel(name=name, task=about.task, speedup=about.speedup, kind=about.kind, source=one.source)
            )
    return [one for kernels in shown.values() for one in kernels]


def kernel(path: Path, wanted: str) -> Found:
    """The kernel whose id begins with `wanted`. Raises UsageError for none or several."""
    found = _read(path, "WHERE substr(id, 1, ?) = ? ORDER BY id", (len(wanted), wanted.lower())) if wanted else []
    if not found:
        raise UsageError(f"{path}: no kernel {wanted}", "kernevo library search lists kernels with their ids")
    if len(found) > 1:
        ids = ", ".join(one.kernel.id for one in found[:5])
        raise UsageError(f"{path}: {len(found)} kernels begin with {wanted}: {ids}", "give more digits")
    return found[0]


def count(path: Path) -> int:
    """How many kernels the library at `path` holds."""
    return len(_read(path, "", ()))


def _read(path: Path, which: str, values: tuple[object, ...]) -> list[Found]:
    statement = f"SELECT facts, text FROM kernels JOIN sources USING (sha) {which}"
    return reading(path, insert, lambda database: [_found(row) for row in database.execute(statement, values)])


def _found(row: tuple[str, bytes]) -> Found:
    return Found(kernel=Kernel.model_validate_json(row[0]), source=row[1].decode("utf-8", "surrogatepass"))
