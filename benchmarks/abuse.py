"""What kernels that harm their worker, their neighbours or the machine cost the good ones judged beside them: nothing.

    python -m benchmarks.abuse [--count 200] [--platform cuda|interpreter] [--seconds S] [--out FILE]

Good kernels are judged alone first, then `count` candidates of the same task of which every third one is bad (see
`benchmarks.abuse_kernels`). Reading is left out, as is the interpreter's smoke stage: both would stop many of them
before they harm anybody. Writes benchmarks/results/abuse.json and exits 1 when a good one gets another verdict or (on
cuda) another latency than alone, a bad one passes or is blamed on the harness, or anything is left after closing.

GPU memory is read by a fresh process: before anything (`at_start`), after judging alone (`before`: what this process
itself keeps is in it) and after the mixed run (`after`).

With --seconds no candidate is begun once so many seconds have gone by; fewer than `count` is a problem, too.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.abuse_kernels import Planned, alone, good_kinds, plan
from benchmarks.common import provenance
from evaluator import confine
from evaluator.backends.gpu import GpuEvaluator
from evaluator.testing import SEED, TASK
from evaluator.types import EvalStatus, Evaluation, EvaluationJob, KernelSource, Task, Workload

RESULT = Path(__file__).parent / "results" / "abuse.json"
MEDIAN_LIMIT, WORST_LIMIT = 0.03, 0.10
"""How far latencies may be from those alone: in median over the good kernels, and at worst."""
MEMORY_LIMIT = 64 << 20
"""Bytes of GPU memory that may differ."""
REPEATS = 3
"""Times that each good kernel is judged alone."""
GRACE_S = 10.0
"""How long processes that were killed may take to go."""
SETTINGS: dict[str, Any] = {
    "cache": False,
    "duplicates": "judge",
    "static": False,
    "smoke": False,
    "timing": "screen",
    "baseline": "eager",
    "timeout_s": 6.0,
    "memory_mb": 1024,
}
# The interpreter needs milliseconds for a program.
SMALL = {
    "workloads": (Workload(name="tall", params={"M": 8, "N": 64}),),
    "check_shapes": (Workload(name="one", params={"M": 1, "N": 1}), Workload(name="prime", params={"M": 7, "N": 67})),
}


@dataclass(frozen=True)
class Judged:
    """A candidate and what the evaluator said of it."""

    planned: Planned
    found: Evaluation


@dataclass(frozen=True)
class Left:
    """What an evaluator leaves behind when it is closed."""

    processes: Sequence[str]
    """Command lines."""
    folders: Sequence[str]


def task(platform: str) -> Task:
    """Sums of rows, at sizes that suit the platform."""
    return TASK if platform == "cuda" else TASK.model_copy(update=SMALL)


def run(platform: str, planned: Sequence[Planned], until: float = math.inf) -> tuple[list[Judged], Left, float]:
    """Candidates judged by an evaluator of its own making, what that left, and the seconds from first to last.

    None is begun once `time.monotonic()` is `until`.
    """
    known = {plan.source.sha: plan for plan in planned}
    assert len(known) == len(planned), "sources must differ"
    before = descendants()
    seed = EvaluationJob(job_id="seed", source=KernelSource(text=SEED))
    with GpuEvaluator(task(platform), {**SETTINGS, "platform": platform}) as evaluator:
        list(evaluator.evaluate([seed]))  # what starting takes is another matter
        folder = evaluator._folder
        jobs = (
            EvaluationJob(job_id=str(number), source=plan.source)
            for number, plan in enumerate(planned)
            if time.monotonic() < until
        )
        started = time.perf_counter()
        judged = []
        for job, found in evaluator.evaluate(jobs):
            judged.append(Judged(known[job.source.sha], found))
            text = (
                f"{len(judged)} of {len(planned)}: {known[job.source.sha].kind}: {found.status} ({found.seconds:.1f} s)"
            )
            print(text, file=sys.stderr, flush=True)
        seconds = time.perf_counter() - started
    folders = [str(folder)] if folder is not None and folder.exists() else []
    return judged, Left(remaining(before), folders), seconds


def descendants() -> dict[int, str]:
    """Processes below this one that have not ended: pid -> command line."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in parentheses, may hold anything.
            state, parent, *_ = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if state != "Z":
            parents[int(stat.parent.name)] = int(parent)
    found, edge = set[int](), {os.getpid()}
    while edge := {pid for pid, parent in parents.items() if parent in edge} - found:
        found |= edge
    return {pid: _command(pid) for pid in found}


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return ""


def remaining(before: Mapping[int, str]) -> list[str]:
    """Command lines of descendants that were not there `before` and do not go by themselves; they are killed."""
    deadline = time.monotonic() + GRACE_S
    while (left := {pid: line for pid, line in descendants().items() if pid not in before}) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.1)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return sorted(left.values())


def gpu_memory(platform: str) -> int | None:
    """Bytes in use on the GPU, as a process sees them that is not this one; None without a GPU."""
    if platform != "cuda":
        return None
    words = "import torch; free, total = torch.cuda.mem_get_info(); print(total - free)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    return int(done.stdout)


def good_rows(first: Sequence[Judged], mixed: Sequence[Judged]) -> dict[str, dict[str, Any]]:
    """By good kernel: verdicts alone and in the mixed run, and the latencies there over the median one alone."""
    rows: dict[str, dict[str, Any]] = {}
    for kind in dict.fromkeys(one.planned.kind for one in first):
        lone = [one.found for one in first if one.planned.kind == kind]
        among = [one.found for one in mixed if one.planned.allowed is None and one.planned.kind == kind]
        latencies = [found.latency_ms for found in lone if found.latency_ms is not None]
        ms = statistics.median(latencies) if latencies else None
        rows[kind] = {
            "alone": _counts(lone),
            "mixed": _counts(among),
            "alone_ms": ms,
            "ratios": [round(found.latency_ms / ms, 4) for found in among if ms and found.latency_ms],
            "refused": sorted({f"{found.status}: {found.reason}" for found in among if not found.status.passed})[:3],
        }
    return rows


def bad_rows(mixed: Sequence[Judged]) -> dict[str, dict[str, Any]]:
    """By kind of harm: the verdicts, those that are right, and whether all of them are."""
    kinds: dict[str, list[Judged]] = defaultdict(list)
    for one in mixed:
        if one.planned.allowed is not None:
            kinds[one.planned.kind].append(one)
    return {
        kind: {
            "verdicts": _counts([one.found for one in found]),
            "allowed": sorted(found[0].planned.allowed or ()),
            "as_allowed": all(one.found.status in (one.planned.allowed or ()) for one in found),
            "reasons": sorted({one.found.reason for one in found})[:3],
            "seconds": round(sum(one.found.seconds for one in found), 1),
        }
        for kind, found in kinds.items()
    }


def _counts(found: Sequence[Evaluation]) -> dict[str, int]:
    return dict(Counter(evaluation.status.value for evaluation in found))


def shifts(good: Mapping[str, Mapping[str, Any]]) -> dict[str, float] | None:
    """How far the good ones' latencies are from those alone, as shares; None when there are none."""
    found = [abs(ratio - 1.0) for row in good.values() for ratio in row["ratios"]]
    return {"median": round(statistics.median(found), 4), "worst": round(max(found), 4)} if found else None


def problems(result: Mapping[str, Any]) -> list[str]:
    """Everything that must not be; empty when the abuse cost nobody anything."""
    left_out = result["asked_for"] - result["candidates"]
    said = [f"{left_out} candidates were not begun in time"] if left_out else []
    return [*said, *_good_problems(result), *_bad_problems(result["bad"]), *_leaks(result)]


def _good_problems(result: Mapping[str, Any]) -> list[str]:
    said = []
    for kind, row in result["good"].items():
        if set(row["alone"]) != {EvalStatus.PASSED.value}:
            said.append(f"{kind}: does not pass alone: {row['alone']}")
        elif set(row["mixed"]) - set(row["alone"]):
            said.append(f"{kind}: gets another verdict among bad ones: {row['mixed']}: {'; '.join(row['refused'])}")
    moved = result["latency_shift"]
    if result["platform"] == "cuda" and moved is not None:
        for which, limit in (("median", MEDIAN_LIMIT), ("worst", WORST_LIMIT)):
            if moved[which] > limit:
                said.append(f"latencies of good kernels moved by {moved[which]:.1%} ({which}; limit {limit:.0%})")
    return said


def _bad_problems(bad: Mapping[str, Mapping[str, Any]]) -> list[str]:
    said = []
    for kind, row in bad.items():
        for word in row["verdicts"]:
            status = EvalStatus(word)
            if status.passed:
                said.append(f"{kind}: passes")
            elif status.blames_harness:
                said.append(f"{kind}: is blamed on the harness: {'; '.join(row['reasons'])}")
    return said


def _leaks(result: Mapping[str, Any]) -> list[str]:
    said = [f"still running after closing: {line}" for line in result["processes_left"]]
    said += [f"not removed: {path}" for path in result["folders_left"]]
    memory = result["gpu_memory_bytes"]
    if memory["before"] is not None and abs(memory["after"] - memory["before"]) > MEMORY_LIMIT:
        said.append(f"GPU memory went from {memory['before'] >> 20} MiB to {memory['after'] >> 20} MiB")
    return said


def measure(count: int, platform: str, until: float = math.inf) -> dict[str, Any]:
    """The whole benchmark, without its provenance."""
    kinds = min(max(count // 12, 1), len(good_kinds()))
    at_start = gpu_memory(platform)
    with _adopting():
        first, left_first, _ = run(platform, list(alone(REPEATS, kinds)))
        before = gpu_memory(platform)
        mixed, left, seconds = run(platform, plan(count, kinds), until)
    good = good_rows(first, mixed)
    result = {
        "task": TASK.name,
        "platform": platform,
        "asked_for": count,
        "candidates": len(mixed),
        "good_candidates": sum(one.planned.allowed is None for one in mixed),
        "good": good,
        "latency_shift": shifts(good),
        "bad": bad_rows(mixed),
        "processes_left": [*left_first.processes, *left.processes],
        "folders_left": [*left_first.folders, *left.folders],
        "gpu_memory_bytes": {"at_start": at_start, "before": before, "after": gpu_memory(platform)},
        "seconds": round(seconds, 1),
        "candidates_per_minute": round(60 * len(mixed) / seconds, 1),
        "settings": SETTINGS,
    }
    return {**result, "problems": problems(result)}


@contextmanager
def _adopting() -> Iterator[None]:
    """Orphans become children of this process, where they are seen."""
    confine.prctl(confine.PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        confine.prctl(confine.PR_SET_CHILD_SUBREAPER, 0)


def show(result: Mapping[str, Any]) -> None:
    """A row per kind, then what else there is to say."""
    table = Table("kernel", "verdicts", "as expected", "latency over alone")
    for kind, row in result["good"].items():
        ratios = row["ratios"]
        span = f"{min(ratios):.3f} to {max(ratios):.3f}" if ratios else ""
        same = set(row["mixed"]) <= set(row["alone"])
        table.add_row(f"good: {kind}", _said(row["mixed"]), "yes" if same else "NO", span)
    for kind, row in result["bad"].items():
        table.add_row(kind, _said(row["verdicts"]), "yes" if row["as_allowed"] else "NO", "")
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    memory = result["gpu_memory_bytes"]
    print(
        f"{result['candidates']} candidates in {result['seconds']} s, {result['candidates_per_minute']} a minute; "
        f"left: {len(result['processes_left'])} processes, {len(result['folders_left'])} folders; "
        f"GPU memory {memory['before']} -> {memory['after']} bytes"
    )
    for line in result["problems"]:
        print(f"BAD {line}")


def _said(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {word}" for word, count in counts.items())


def main(words: Sequence[str] | None = None) -> int:
    """Measure, write the result, print a table; 1 when abuse cost somebody something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="candidates of the mixed run")
    parser.add_argument("--platform", choices=("cuda", "interpreter"), default="cuda")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no candidate after so many seconds")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args(words)
    known = provenance("-m benchmarks.abuse")
    result = measure(options.count, options.platform, time.monotonic() + options.seconds)
    if options.platform == "cuda":
        import torch

        known["gpu"] = torch.cuda.get_device_name()
    options.out.write_text(json.dumps({**result, **known}, indent=2) + "\n")
    show(result)
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
