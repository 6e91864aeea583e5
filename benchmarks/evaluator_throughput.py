"""Candidates per minute through the whole CPU cascade on the softmax task, and where the time goes.

    python -m benchmarks.evaluator_throughput [--candidates 48] [--workers 2]

Every candidate is another program: block sizes and warps of the shipped seed, and its loops in another form. The
verdict cache is off. The start of the workers and the judging of the seed are reported, not counted: a campaign pays
them once. Writes benchmarks/results/evaluator_throughput.json and exits 1 below the limit.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import provenance
from evaluator.backends.cpu import CpuEvaluator
from evaluator.task import load_task
from evaluator.types import Evaluation, EvaluationJob, KernelSource

LIMIT_PER_MINUTE = 60.0
RESULT = Path(__file__).parent / "results" / "evaluator_throughput.json"


def candidates(seed: str) -> Iterator[KernelSource]:
    """Distinct programs made from the seed, in a fixed order."""
    for exp2, reciprocal, warps, block in itertools.product(
        (False, True), (False, True), (1, 2, 4, 8), (64, 128, 512, 1024, 2048, 4096)
    ):
        text = seed.replace("BLOCK_SIZE = 256", f"BLOCK_SIZE = {block}")
        text = text.replace("num_warps=4", f"num_warps={warps}")
        if exp2:
            text = text.replace("tl.exp(x - row_max)", "tl.exp2((x - row_max) * 1.4426950408889634)")
        if reciprocal:
            text = text.replace(") / row_sum", ") * (1.0 / row_sum)")
        yield KernelSource(text=text)


def cpu_seconds() -> float:
    """Processor time of this process and of every child it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def measure(count: int, workers: int) -> dict[str, Any]:
    """Judge `count` candidates and describe the run."""
    task = load_task("softmax")
    assert task.seed_source is not None
    sources = list(itertools.islice(candidates(task.seed_source), count))
    assert len({source.sha for source in sources}) == len(sources)
    jobs = [EvaluationJob(job_id=f"b{index}", source=source) for index, source in enumerate(sources)]
    settings = {"cache": False, "workers": workers, "timeout_s": 60.0}
    with CpuEvaluator(task, settings) as evaluator:
        started = time.perf_counter()
        seed = EvaluationJob(job_id="seed", source=KernelSource(text=task.seed_source))
        list(evaluator.evaluate([seed]))
        warmed = time.perf_counter()
        found = [evaluation for _, evaluation in evaluator.evaluate(jobs)]
        seconds = time.perf_counter() - warmed
    return {
        "candidates": len(found),
        "passed": sum(evaluation.status.passed for evaluation in found),
        "seconds": round(seconds, 3),
        "candidates_per_minute": round(60 * len(found) / seconds, 1),
        "startup_seconds": round(warmed - started, 3),
        "cpu_seconds_with_startup": round(cpu_seconds(), 3),
        "mean_seconds_by_stage": _by_stage(found),
        "workers": workers,
        "seeds": {"evaluator": 0},
    }


def _by_stage(found: list[Evaluation]) -> dict[str, float]:
    names = [stage.name for stage in max(found, key=lambda evaluation: len(evaluation.stages)).stages]
    return {
        name: round(
            sum(stage.seconds for evaluation in found for stage in evaluation.stages if stage.name == name)
            / len(found),
            4,
        )
        for name in names
    }


def main() -> int:
    """Measure, print, write the result; 1 when the limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=48)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    context = provenance("-m benchmarks.evaluator_throughput")
    result = {**measure(options.candidates, options.workers), "limit_per_minute": LIMIT_PER_MINUTE, **context}
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    rate = result["candidates_per_minute"]
    verdict = "ok" if rate >= LIMIT_PER_MINUTE else "TOO SLOW"
    print(f"{rate} candidates a minute (limit {LIMIT_PER_MINUTE:g}): {verdict}")
    print(f"startup {result['startup_seconds']} s, {result['passed']} of {result['candidates']} passed")
    print(f"mean seconds by stage: {result['mean_seconds_by_stage']}")
    return 0 if rate >= LIMIT_PER_MINUTE else 1


if __name__ == "__main__":
    sys.exit(main())
