"""The gpu evaluator's own figures: candidates a minute, configs a minute in the screen tier, and how well it repeats.

    python -m benchmarks.gpu_evaluator [--parts throughput repeat kernelbench] [--kernelbench CHECKOUT] [--out FILE]

Needs a GPU. Parts that are not asked for stay in FILE as they are, each with its own provenance. `kernelbench` (needs a
checkout) judges one softmax kernel at the shape of KernelBench's level 1 problem 23 (6 GB) with that suite's own
`eval_kernel_against_ref` (5 correctness and 100 timing trials) and with this evaluator, one after the other on the same
GPU. Writes benchmarks/results/gpu_evaluator.json and exits 1 below a limit.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.common import provenance
from evaluator.backends.gpu import GpuEvaluator
from evaluator.task import load_task
from evaluator.types import Evaluation, EvaluationJob, KernelSource, Task, Tolerance, Workload
from policy.rewrites.base import RewriteContext
from policy.rewrites.catalogue import rewrite_named

RESULT = Path(__file__).parent / "results" / "gpu_evaluator.json"
LIMITS: dict[str, dict[str, tuple[float, int]]] = {
    "throughput": {"candidates_per_minute": (40.0, 1), "screens_per_minute": (150.0, 1)},
    "repeat": {"median_rel_std": (0.005, -1), "ratio_rel_std": (0.003, -1)},
    "kernelbench": {"times_faster": (30.0, 1)},
}
"""By part and figure: the limit, and 1 where more is better."""
LARGE = {"batch_size": 4096, "dim": 393216}
SETTINGS = {"cache": False, "timeout_s": 120.0, "duplicates": "judge"}
BLOCKS, WARPS = (64, 128, 512, 1024, 2048, 4096, 8192), (1, 2, 4, 8, 16)

REFERENCE = '''"""Softmax over the rows of a large matrix."""
import torch

batch_size = 4096
dim = 393216


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.rand(batch_size, dim)]


def get_init_inputs():
    return []
'''


def variants(seed: str) -> Iterator[KernelSource]:
    """Distinct programs made from a seed with BLOCK_SIZE and num_warps literals."""
    for block, warps in itertools.product(BLOCKS, WARPS):
        text = seed.replace("BLOCK_SIZE = 256", f"BLOCK_SIZE = {block}").replace("num_warps=4", f"num_warps={warps}")
        yield KernelSource(text=text)


def throughput(count: int) -> dict[str, Any]:
    """Softmax and layer_norm candidates through the whole cascade; the start of each evaluator is reported apart."""
    rows: dict[str, Any] = {}
    total, seconds = 0, 0.0
    screens: list[float] = []
    for name in ("softmax", "layer_norm"):
        task = load_task(name)
        assert task.seed_source is not None
        sources = list(dict.fromkeys(variants(task.seed_source)))[: count // 2]
        jobs = [EvaluationJob(job_id=str(index), source=source) for index, source in enumerate(sources)]
        started = time.perf_counter()
        with GpuEvaluator(task, {**SETTINGS, "timing": "screen", "baseline": "eager"}) as evaluator:
            list(evaluator.evaluate([EvaluationJob(job_id="seed", source=KernelSource(text=task.seed_source))]))
            ready = time.perf_counter()
            with _alone(evaluator, screens):
                found = [evaluation for _, evaluation in evaluator.evaluate(jobs)]
            ended = time.perf_counter()
        total, seconds = total + len(found), seconds + ended - ready
        rows[name] = {
            "candidates": len(found),
            "passed": sum(evaluation.status.passed for evaluation in found),
            "start_seconds": round(ready - started, 1),
            "seconds": round(ended - ready, 1),
            "mean_seconds_by_stage": _by_stage(found),
            "refused": [f"{e.status}: {e.reason}" for e in found if not e.status.passed][:5],
        }
    return {
        "tasks": rows,
        "refused": [text for row in rows.values() for text in row["refused"]],
        "candidates_per_minute": round(60 * total / seconds, 1),
        "screens_per_minute": round(60 / statistics.mean(screens), 1),
        "screen_seconds": round(statistics.mean(screens), 4),
    }


@contextmanager
def _alone(evaluator: GpuEvaluator, holds: list[float]) -> Iterator[None]:
    """Note how long each `time` stage holds the GPU: the wait for it is not the tier's."""
    setting = evaluator._setting
    assert setting is not None
    locks = setting.locks

    class Noted:
        shared = staticmethod(locks.shared)

        @contextmanager
        def exclusive(self) -> Iterator[None]:
            with locks.exclusive():
                begin = time.perf_counter()
                yield
                caller = sys._getframe(2).f_code.co_name
                if caller == "time":
                    holds.append(time.perf_counter() - begin)

    setting.locks = Noted()
    try:
        yield
    finally:
        setting.locks = locks


def _by_stage(found: list[Evaluation]) -> dict[str, float]:
    seconds: dict[str, list[float]] = defaultdict(list)
    for evaluation in found:
        for stage in evaluation.stages:
            seconds[stage.name].append(stage.seconds)
    return {name: round(statistics.mean(values), 3) for name, values in seconds.items()}


def repeatability(repeats: int) -> dict[str, Any]:
    """The confirm tier on one kernel again and again: relative standard deviations of median and ratio."""
    task = load_task("softmax")
    assert task.seed_source is not None
    task = task.model_copy(update={"workloads": task.workloads[:1]})
    jobs = [
        EvaluationJob(job_id=str(index), source=KernelSource(text=f"{task.seed_source}# {index}\n"))
        for index in range(repeats)
    ]
    with GpuEvaluator(task, {**SETTINGS, "timing": "confirm", "workers": 1}) as evaluator:
        found = [evaluation for _, evaluation in evaluator.evaluate(jobs)]
    timings = [next(iter(e.timings.values())) for e in found if e.status.passed]
    medians = [timing.median_ms for timing in timings]
    ratios = [timing.speedup for timing in timings if timing.speedup is not None]
    return {
        "workload": task.workloads[0].name,
        "repeats": len(timings),
        "medians_ms": medians,
        "ratios": ratios,
        "median_rel_std": statistics.stdev(medians) / statistics.mean(medians),
        "ratio_rel_std": statistics.stdev(ratios) / statistics.mean(ratios),
        "samples": [timing.samples for timing in timings],
        "refused": [f"{e.status}: {e.reason}" for e in found if not e.status.passed][:5],
    }


def large_task() -> Task:
    """Softmax over 4096 rows of 393216 float32 values."""
    base = load_task("softmax")
    return base.model_copy(
        update={
            "name": "softmax_6gb",
            "reference_source": REFERENCE,
            "origin": "benchmarks.gpu_evaluator",
            "tolerance": Tolerance(atol=1e-4, rtol=1e-4),
            "workloads": (Workload(name="4096x393216", params=LARGE),),
            "check_shapes": (Workload(name="small", params={"batch_size": 4, "dim": 528}),),
        }
    )


def against_kernelbench(checkout: Path) -> dict[str, Any]:
    """One candidate judged by both, seconds of each. Ours with five seeds and 100 samples, as theirs."""
    task = large_task()
    assert task.seed_source is not None
    wide = task.seed_source.replace("BLOCK_SIZE = 256", "BLOCK_SIZE = 4096").replace("num_warps=4", "num_warps=8")
    context = RewriteContext.of_task(task)
    (arguments,) = rewrite_named("online_reduction").candidates(wide, context)
    source = rewrite_named("online_reduction").apply(wide, arguments, context)
    first = KernelSource(text=task.seed_source)
    settings = {**SETTINGS, "timing": "confirm", "workers": 1, "baseline": "eager", "energy": False, "max_samples": 100}
    with GpuEvaluator(task, settings) as evaluator:
        started = time.perf_counter()
        list(evaluator.evaluate([EvaluationJob(job_id="first", source=first)]))
        warm = time.perf_counter()
        ((_, ours),) = evaluator.evaluate([EvaluationJob(job_id="large", source=KernelSource(text=source))])
        seconds = time.perf_counter() - warm
    theirs, their_seconds, speaks = _kernelbench(checkout, source)
    return {
        "ours_seconds": round(seconds, 2),
        "ours_start_seconds": round(warm - started, 1),
        "ours": f"{ours.status}: {ours.reason}",
        "refused": [] if ours.status.passed else [f"{ours.status}: {ours.reason}"],
        "ours_stages": {stage.name: round(stage.seconds, 2) for stage in ours.stages},
        "ours_ms": {name: timing.median_ms for name, timing in ours.timings.items()},
        "ours_samples": {name: timing.samples for name, timing in ours.timings.items()},
        "theirs_seconds": round(their_seconds, 2),
        "theirs": theirs,
        "theirs_ms": speaks,
        "times_faster": round(their_seconds / seconds, 1),
    }


def _kernelbench(checkout: Path, source: str) -> tuple[str, float, Any]:
    sys.path.insert(0, str(checkout / "src"))
    import torch
    from kernelbench.eval import eval_kernel_against_ref  # type: ignore[import-not-found]

    began = time.perf_counter()
    result = eval_kernel_against_ref(
        REFERENCE,
        source,
        num_correct_trials=5,
        num_perf_trials=100,
        measure_performance=True,
        backend="triton",
        device=torch.device("cuda:0"),
    )
    seconds = time.perf_counter() - began
    return f"compiled {result.compiled}, correct {result.correctness}", seconds, result.runtime


def main() -> int:
    """Measure, print a short table, write the result; 1 below a limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=["throughput", "repeat"], choices=list(LIMITS))
    parser.add_argument("--candidates", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--kernelbench", type=Path)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    import torch

    known = {"gpu": torch.cuda.get_device_name(), **provenance("-m benchmarks.gpu_evaluator")}
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "throughput": lambda: throughput(options.candidates),
        "repeat": lambda: repeatability(options.repeats),
        "kernelbench": lambda: against_kernelbench(options.kernelbench),
    }
    result: dict[str, Any] = json.loads(options.out.read_text()) if options.out.is_file() else {}
    held = True
    for name in options.parts:
        result[name] = {**parts[name](), **known}
        options.out.write_text(json.dumps(result, indent=2) + "\n")
        print(name, json.dumps({key: value for key, value in result[name].items() if key not in known}), flush=True)
        for complaint in result[name].get("refused", []):
            held = False
            print(f"BAD {name}: {complaint}", flush=True)
        for figure, (limit, sign) in LIMITS[name].items():
            within = (result[name][figure] - limit) * sign >= 0
            held = held and within
            print(f"{'ok ' if within else 'BAD'} {figure} {result[name][figure]:.4g} (limit {limit:g})", flush=True)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
