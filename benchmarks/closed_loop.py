"""Search, train, swap, search: does a policy that learns in the campaign beat the same policy frozen?

    python -m benchmarks.closed_loop --model FOLDER [--task softmax] [--seeds 0 1 2] [--evaluations 65] [--out FILE]
    python -m benchmarks.closed_loop --model FOLDER --evaluator cpu     # modelled timings, to try it out only

Each seed runs two campaigns with equal settings and seeds, but that one trains its policy twice, on its own elite
steps; no candidate is judged for the training, so that evaluations are equal too. One evaluator judges both and
remembers its verdicts: a kernel that both find has one latency. Campaigns that are done are not done again. Writes
benchmarks/results/closed_loop.json with the best speedup after each evaluation and exits 1 unless learning was better
in all seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import provenance
from evaluator.backends import create
from evaluator.protocol import Evaluator
from evaluator.task import load_task
from evo import journal
from evo.build import make_policy
from evo.campaign import Campaign
from evo.config import CampaignConfig
from evo.config_file import load_config
from evo.events import LEARNED, Learned
from evo.run import Run

RESULT = Path(__file__).parent / "results" / "closed_loop.json"
LEARNING, FROZEN = ARMS = ("learning", "frozen")
OFFSPRING = 8
TRAININGS = 2


def write_config(options: argparse.Namespace, arm: str, seed: int) -> Path:
    """The config file of one campaign."""
    generations = math.ceil((options.evaluations - 1) / OFFSPRING)  # behind the seed's
    shared = {"timeout_s": 30.0}
    measured = {"type": "gpu", "baseline": "eager", "timing": "screen", "allow_busy": True}
    config: dict[str, Any] = {
        "task": options.task,
        "seed": seed,
        "runs_dir": str(options.folder / "runs"),
        "evaluator": shared | (measured if options.evaluator == "gpu" else {"type": "cpu"}),
        "policy": {"type": "transformers", "model": str(options.model), "max_tokens": 128, "repair": False},
        # A kernel keeps its first latency: both arms remember the same one.
        "search": {
            "population": OFFSPRING,
            "offspring": OFFSPRING,
            "tuning": {"share": 0.25},
            "archive": {"remeasure": None},
        },
        "budget": {"evaluations": options.evaluations},
        "finalists": {"count": 0},
    }
    if arm == LEARNING:
        config["learning"] = {
            "base": str(options.model),
            "every": math.ceil((generations + 1) / (TRAININGS + 1)),
            "method": options.method,
            "steps": options.steps,
            "learning_rate": options.rate,
            "rank": 8,
            "micro_batch": 8,
            "probe": 0,  # it would be judged
            "seed": seed,
            "allow_modelled": options.evaluator == "cpu",
        }
    path: Path = options.folder / f"{arm}-{seed}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    return path


def run(config: CampaignConfig, folder: Path, evaluator: Evaluator) -> None:
    """One campaign, whole."""
    policy = make_policy(config)
    try:
        Campaign(config, folder, evaluator=evaluator, policy=policy).run()
    finally:
        policy.close()


def told(folder: Path) -> dict[str, Any]:
    """What came of a campaign."""
    found = Run.load(folder)
    best, curve = 0.0, []
    for record in found.records():
        best = max(best, record.speedup or 0.0)
        curve.append(round(best, 4))
    kept = ("generation", "kept", "exit_code", "took_s")
    history, _ = journal.read(found.dir.journal)
    learned = [journal.parsed(Learned, one.data, found.dir.journal, one.seq) for one in history if one.kind == LEARNED]
    return {
        "best": curve[-1],
        "curve": curve,
        "mean_log_best": mean_log(curve),
        "trainings": [{name: one.model_dump()[name] for name in kept} for one in learned],
    }


def mean_log(curve: Sequence[float]) -> float:
    """Mean logarithm of the best so far; 0 while nothing has passed."""
    return sum(math.log(one) if one else 0.0 for one in curve) / len(curve)


def compared(found: Sequence[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Ratios of learning to frozen, seed by seed, at the end and over the whole curve."""
    best = [one[LEARNING]["best"] / one[FROZEN]["best"] for one in found]
    curve = [math.exp(one[LEARNING]["mean_log_best"] - one[FROZEN]["mean_log_best"]) for one in found]
    return {
        "best_ratio": [round(ratio, 4) for ratio in best],
        "curve_ratio": [round(ratio, 4) for ratio in curve],
        "median_best_ratio": round(statistics.median(best), 4),
        "median_curve_ratio": round(statistics.median(curve), 4),
        "learning_is_better": all(ratio > 1 for ratio in best),
    }


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder of a chat model")
    parser.add_argument(
        "--folder", type=Path, required=True, help="where runs are kept; what is done is not done again"
    )
    parser.add_argument("--task", default="softmax")
    parser.add_argument("--evaluator", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--evaluations", type=int, default=65)
    parser.add_argument("--method", choices=["sft", "dpo"], default="sft")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--out", type=Path, default=RESULT)
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Run, print a short table, write the result."""
    options = parsed(words)
    context = provenance("-m benchmarks.closed_loop")
    configs = {(seed, arm): load_config(write_config(options, arm, seed)) for seed in options.seeds for arm in ARMS}
    first = next(iter(configs.values()))
    campaigns: dict[int, dict[str, dict[str, Any]]] = {}
    with create(first.evaluator.model_dump(), load_task(options.task)) as evaluator:
        for (seed, arm), config in configs.items():
            done, started = options.folder / f"{arm}-{seed}.json", time.perf_counter()
            if not done.is_file():
                folder = options.folder / "runs" / f"{arm}-{seed}"
                run(config, folder, evaluator)
                seconds = round(time.perf_counter() - started, 1)
                done.write_text(json.dumps({**told(folder), "seconds": seconds}), encoding="utf-8")
            came = json.loads(done.read_text(encoding="utf-8"))
            campaigns.setdefault(seed, {})[arm] = came
            print(f"{arm}-{seed}: {came['best']:.3f}x", file=sys.stderr, flush=True)
    found = list(campaigns.values())
    result = {
        "task": options.task,
        "timing_kind": "measured" if options.evaluator == "gpu" else "modelled",
        "model": options.model.name,
        "seeds": options.seeds,
        "evaluations": options.evaluations,
        "learning": configs[options.seeds[0], LEARNING].learning.model_dump() | {"base": options.model.name},  # type: ignore[union-attr]
        "campaigns": found,
        **compared(found),
        **context,
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for seed, one in zip(options.seeds, found, strict=True):
        for arm in ARMS:
            print(
                f"seed {seed} {arm:>8}: best {one[arm]['best']:.3f}x, {one[arm]['seconds']} s, {one[arm]['trainings']}"
            )
    print(f"best {result['best_ratio']}, curve {result['curve_ratio']}")
    return 0 if result["learning_is_better"] else 1


if __name__ == "__main__":
    sys.exit(main())
