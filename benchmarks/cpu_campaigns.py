"""A campaign on each shipped task with the cpu evaluator and the rule policy: what it improves over the seed.

    python benchmarks/cpu_campaigns.py [--evaluations 150] [--seed 0] [--tasks softmax matmul …]

All latencies are modelled (h200): the table says how far the search climbs in the model, not how fast a kernel is on
a GPU. Passes when at least six of eight tasks improve by more than 1 %. Writes benchmarks/results/cpu_campaigns.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import provenance
from evaluator.calibration import calibration
from evaluator.task import list_tasks
from evo.campaign import Campaign
from evo.config import CampaignConfig

RESULT = Path(__file__).parent / "results" / "cpu_campaigns.json"
IMPROVED = 1.01
NEEDED = 6


def campaign(task: str, evaluations: int, seed: int, folder: Path) -> dict[str, Any]:
    """One campaign, described."""
    config = CampaignConfig.model_validate(
        {
            "task": task,
            "seed": seed,
            "budget": {"evaluations": evaluations},
            "search": {"population": 16, "offspring": 10},
            "monitors": ("console",),
        }
    )
    started = time.perf_counter()
    result = Campaign(config, folder / task).run()
    records = result.run.records()
    best = result.best
    return {
        "task": task,
        "evaluations": len(records),
        "correct": sum(record.passed for record in records),
        "best_speedup_modelled": round(best.speedup, 4) if best and best.speedup else None,
        "best_latency_ms_modelled": best.evaluation.latency_ms if best else None,
        "rewrites": [step.name for step in best.candidate.rewrites] if best else [],
        "config": dict(best.candidate.config) if best else {},
        "cells": len(result.run.generations()[-1].archive),
        "structures": len({record.candidate.structure for record in records}),
        "seconds": round(time.perf_counter() - started, 1),
        "cached": sum(record.evaluation.cached for record in records),
        "stopped": result.stopped,
    }


def main() -> int:
    """Run, print the table, write the result; 1 when too few tasks improve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluations", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tasks", nargs="+", default=list_tasks())
    parser.add_argument("--runs", type=Path, help="keep the run folders here")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    context = provenance("benchmarks/cpu_campaigns.py")
    with tempfile.TemporaryDirectory(prefix="kernevo-bench-") as folder:
        for task in options.tasks:
            rows.append(campaign(task, options.evaluations, options.seed, options.runs or Path(folder)))
            improved = sum((row["best_speedup_modelled"] or 0.0) > IMPROVED for row in rows)
            document = {
                "kind": "modelled",
                "target": "h200",
                "calibrated": calibration("h200") is not None,
                "tasks": rows,
                "improved": improved,
                "seed": options.seed,
            }
            RESULT.write_text(json.dumps({**document, **context}, indent=2) + "\n")
            if rows[-1]["stopped"] == "interrupted":
                return 130
    print(f"{'task':15} {'speedup':>8} {'correct':>9} {'cells':>5} {'s':>6}  rewrites (all latencies modelled)")
    for row in rows:
        speedup = row["best_speedup_modelled"] or float("nan")
        correct = f"{row['correct']}/{row['evaluations']}"
        steps = ", ".join(row["rewrites"]) or "none"
        print(f"{row['task']:15} {speedup:8.3f} {correct:>9} {row['cells']:5} {row['seconds']:6.0f}  {steps}")
    print(f"{improved} of {len(rows)} improve over their seed (needed: {min(NEEDED, len(rows))})")
    return 0 if improved >= min(NEEDED, len(rows)) else 1


if __name__ == "__main__":
    sys.exit(main())
