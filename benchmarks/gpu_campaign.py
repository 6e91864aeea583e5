"""A campaign with measured fitness on this machine's GPU, and its elite measured again in a new process.

    python -m benchmarks.gpu_campaign [--config configs/softmax_gpu.yaml] [--seconds 200] [--set a.b=c …] [--out FILE]

Runs `kernevo run`, `kernevo harvest --top 1` and `kernevo evaluate --json` as a user would, each in a process of its
own, and compares what the campaign recorded of its elite with what the last one measures. Latencies are compared, and
ratios to the baseline, which meet heat and clocks together with the kernel. Writes benchmarks/results/gpu_campaign.json
and exits 1 when the geometric mean of either moved by more than 2 %, or when nothing was found.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.common import provenance
from evaluator.types import Evaluation
from evo.run import Run

RESULT = Path(__file__).parent / "results" / "gpu_campaign.json"
CONFIG = Path(__file__).parent.parent / "configs" / "softmax_gpu.yaml"
LIMIT = 0.02


def kernevo(*arguments: str) -> str:
    """What a command prints. Raises SystemExit with its words when it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "evo.cli.main", *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"kernevo {' '.join(arguments)} ended with code {done.returncode}")
    return done.stdout


def moved(before: Evaluation, after: Evaluation) -> dict[str, float | None]:
    """Relative change of latency and of the ratio to the baseline, by geometric mean; None without both."""
    pairs = {"latency": (before.latency_ms, after.latency_ms), "ratio": (before.speedup, after.speedup)}
    return {name: None if not (a and b) else math.exp(math.log(b) - math.log(a)) - 1 for name, (a, b) in pairs.items()}


def held(change: Mapping[str, float | None]) -> bool:
    """Whether both were measured and neither moved too far."""
    return all(value is not None and abs(value) <= LIMIT for value in change.values())


def described(evaluation: Evaluation) -> dict[str, Any]:
    """The numbers of one measurement, workload by workload."""
    return {
        "speedup": evaluation.speedup,
        "latency_ms": evaluation.latency_ms,
        "workloads": {
            name: {
                "ms": timing.median_ms,
                "baseline": timing.baseline,
                "baseline_ms": timing.baseline_ms,
                "ratio": timing.speedup,
                "samples": timing.samples,
                "speed_of_light_ms": timing.speed_of_light_ms,
                "energy_mj": timing.energy_mj,
            }
            for name, timing in evaluation.timings.items()
        },
    }


def campaign(config: Path, overrides: list[str], folder: Path) -> dict[str, Any]:
    """Run, harvest, evaluate; what came of it."""
    started = time.perf_counter()
    settings = [part for pair in [f"runs_dir={folder}", *overrides] for part in ("--set", pair)]
    kernevo("run", str(config), "--name", "measured", *settings)
    seconds = time.perf_counter() - started
    run = Run.load(folder / "measured")
    records = run.records()
    best = max((record for record in records if record.speedup), key=lambda record: record.speedup or 0.0)
    kernevo("harvest", str(run.path), "--top", "1", "--out", str(folder / "elite"))
    (elite,) = json.loads((folder / "elite" / "harvest.json").read_text(encoding="utf-8"))["elites"]
    kernel = folder / "elite" / elite["file"]
    baseline = str(run.config.evaluator.model_dump().get("baseline", "best"))
    asked = ["--task", run.config.task, "--evaluator", "gpu", "--baseline", baseline, "--json"]
    again = Evaluation.model_validate(json.loads(kernevo("evaluate", str(kernel), *asked))["evaluation"])
    return {
        "task": run.config.task,
        "target": again.target,
        "evaluations": len(records),
        "seconds": round(seconds, 1),
        "verdicts": dict(Counter(str(record.evaluation.status) for record in records)),
        "elite": best.id,
        "rewrites": [step.name for step in best.candidate.rewrites],
        "recorded": described(best.evaluation),
        "measured_again": described(again),
        "moved": moved(best.evaluation, again),
    }


def main() -> int:
    """Measure, print a short table, write the result; 1 beyond the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--seconds", type=float, help="budget.seconds of the campaign")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="a.b=c")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    overrides = [*options.overrides, *([f"budget.seconds={options.seconds}"] if options.seconds else [])]
    context = provenance("-m benchmarks.gpu_campaign")
    with tempfile.TemporaryDirectory(prefix="kernevo-campaign-") as name:
        found = campaign(options.config, overrides, Path(name))
    options.out.write_text(json.dumps({**found, **context}, indent=2) + "\n", encoding="utf-8")
    print(f"{found['evaluations']} evaluations in {found['seconds']} s: {found['verdicts']}")
    for part in ("recorded", "measured_again"):
        print(f"{part:>15}: {found[part]['latency_ms']:.4g} ms, {found[part]['speedup'] or 0:.3f}x")
    for what, change in found["moved"].items():
        print(f"{'ok ' if change is not None and abs(change) <= LIMIT else 'BAD'} {what} moved by {change or 0:+.2%}")
    return 0 if held(found["moved"]) else 1


if __name__ == "__main__":
    sys.exit(main())
