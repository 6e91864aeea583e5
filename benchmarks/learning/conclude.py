"""What the arms of `benchmarks.learning.prove` say: figures, intervals, the claim. Needs no GPU and no model.

    python -m benchmarks.learning.conclude FOLDER [FOLDER] [--model NAME] [--result FILE]

Reads all seeds in each FOLDER; of two folds every pair is judged by those who never saw it. Writes
benchmarks/results/learning_proof.json with the curves and exits 1 when the claim does not hold: it is then said so, and
nothing is tuned until it does. Exits 2 when a seed is not done.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning.arms import ARMS, BASE, FREE, RL, SFT, SHUFFLED, SPLITS, phases, write
from policy.training.judging import Judged, shares
from policy.training.metrics_log import read as read_metrics
from policy.training.probe import FAILED
from policy.training.stopwatch import PARTS

RESULT = Path(__file__).parents[1] / "results" / "learning_proof.json"
RESAMPLES = 10_000
CONFIDENCE = 0.95
WORDS = {BASE: "base", SFT: "SFT", RL: "SFT + RL", SHUFFLED: "SFT + RL on shuffled rewards"}
NEEDED = (
    "commit",
    "uncommitted_changes",
    "versions",
    "hardware",
    "command",
    "date",
    "load_average_before",
    "gpu",
    "timing_kind",
)
Found = dict[str, list[list[Judged]]]
"""By pair: the judged answers to each of its prompts."""
Draw = Callable[[np.random.Generator], tuple[Sequence[int], Sequence[int]]]
"""Seeds and pairs of one bootstrap sample."""


def load(path: Path) -> Found:
    """Judged answers, as `arms` wrote them."""
    told = json.loads(path.read_text(encoding="utf-8"))
    return {pair: [[Judged(**one) for one in group] for group in groups] for pair, groups in told.items()}


def figures(found: Iterable[Found]) -> dict[str, float]:
    """Shares over all answers of all training seeds; unknown answers count as failed."""
    answers = [one for seed in found for groups in seed.values() for group in groups for one in group]
    named = {name: value for name, value in shares(answers, 1).items() if name != "zero_variance"}
    logs = [math.log(one.speedup) if one.correct and one.speedup else 0.0 for one in answers]
    named["geometric_mean"] = math.exp(sum(logs) / len(logs))
    return {name: round(value, 4) for name, value in named.items()}


def by_pair(found: Found) -> dict[str, float]:
    """Mean reward of each pair, over prompts and answers."""
    return {
        pair: float(np.mean([FAILED if one.reward is None else one.reward for group in groups for one in group]))
        for pair, groups in found.items()
    }


def difference(first: Sequence[Found], second: Sequence[Found]) -> dict[str, Any]:
    """Mean reward of the first minus the second, seed by seed. The interval comes of a bootstrap over training seeds,
    tasks and the shapes in them; `by_pair` of one over (task, shape) pairs alone."""
    pairs = sorted(first[0])
    rows = [[by_pair(a)[pair] - by_pair(b)[pair] for pair in pairs] for a, b in zip(first, second, strict=True)]
    deltas = np.array(rows)
    tasks: dict[str, list[int]] = defaultdict(list)
    for place, pair in enumerate(pairs):
        tasks[pair.split("@")[0]].append(place)
    groups = list(tasks.values())
    seeds = range(len(rows))

    def clustered(rng: np.random.Generator) -> tuple[Sequence[int], Sequence[int]]:
        drawn = [groups[task] for task in rng.integers(0, len(groups), len(groups))]
        places = [int(place) for group in drawn for place in rng.choice(group, len(group))]
        return rng.integers(0, len(rows), len(rows)).tolist(), places

    def paired(rng: np.random.Generator) -> tuple[Sequence[int], Sequence[int]]:
        return seeds, rng.integers(0, len(pairs), len(pairs)).tolist()

    return {**_interval(deltas, clustered), "by_pair": _interval(deltas, paired), "pairs": len(pairs)}


def _interval(deltas: np.ndarray[Any, Any], draw: Draw) -> dict[str, float]:
    rng = np.random.default_rng(0)
    means = [deltas[np.ix_(*draw(rng))].mean() for _ in range(RESAMPLES)]
    low, high = np.quantile(means, ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
    return {name: round(float(value), 5) for name, value in (("mean", deltas.mean()), ("low", low), ("high", high))}


def of_steps(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Where the time of a step of reinforcement learning goes, and how far sampler and trainer differ; medians, and
    the largest difference of a token's log-probability of all steps."""
    seconds = {
        part: float(np.median([row[f"seconds/{part}"] for row in rows])) for part in (*PARTS, "overhead", "step")
    }
    return {
        "steps": len(rows),
        "seconds": {part: round(value, 3) for part, value in seconds.items()},
        "overhead_share": round(float(np.median([row["seconds/overhead"] / row["seconds/step"] for row in rows])), 4),
        "mismatch_mean_abs": float(np.median([row["mismatch/mean_abs"] for row in rows])),
        "mismatch_max_abs": max(float(row["mismatch/max_abs"]) for row in rows),
        "mismatch_rejected": float(np.mean([row["mismatch/rejected"] for row in rows])),
    }


def done_seeds(folder: Path) -> list[Path]:
    """The folder of each seed. Leaves 2 with a line where one is not done."""
    seeds = sorted((path for path in folder.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
    undone = [f"{path.name}/{name}" for path in seeds for name, done in phases(path).items() if not done.is_file()]
    if undone or not seeds:
        print(
            f"{folder}: not done: {', '.join(undone) or 'anything'}; benchmarks.learning.prove does it", file=sys.stderr
        )
        raise SystemExit(2)
    return seeds


def conclude(folders: Sequence[Path], model: str) -> dict[str, Any]:
    """The result of all folds. Leaves 2 with a line where a seed is not done, or is not in every fold."""
    folds = [done_seeds(folder) for folder in folders]
    numbers = [int(path.name) for path in folds[0]]
    if any([int(path.name) for path in seeds] != numbers for seeds in folds):
        print(
            f"{folders[0]} and {folders[1]}: not of the same seeds; benchmarks.learning.prove adds some",
            file=sys.stderr,
        )
        raise SystemExit(2)

    def of_seeds(name: str) -> list[Found]:
        """Of each seed all folds' pairs, which differ."""
        return [
            {pair: one for path in paths for pair, one in load(path / name).items()}
            for paths in zip(*folds, strict=True)
        ]

    found = {split: {arm: of_seeds(f"{arm}.{split}.json") for arm in ARMS} for split in SPLITS}
    free = {arm: of_seeds(f"{arm}.{FREE}.json") for arm in (BASE, SFT)}
    own, seen = found["held_out"], found["training"]
    every = [path for seeds in folds for path in seeds]
    told = [json.loads((path / "provenance.json").read_text(encoding="utf-8")) for path in every]
    settings = [json.loads((folder / "settings.json").read_text(encoding="utf-8")) for folder in folders]
    curves = {WORDS[arm]: [read_metrics(path / arm / "metrics.jsonl") for path in every] for arm in ARMS[1:]}
    return {
        "model": model,
        "seeds": numbers,
        "folds": [{split: sorted(load(seeds[0] / f"{BASE}.{split}.json")) for split in SPLITS} for seeds in folds],
        "arms": {split: {WORDS[arm]: figures(part[arm]) for arm in ARMS} for split, part in found.items()},
        "valid_without_constraint": {WORDS[arm]: figures(part)["valid"] for arm, part in free.items()},
        "rl_minus_sft": difference(own[RL], own[SFT]),
        "shuffled_minus_sft": difference(own[SHUFFLED], own[SFT]),
        "rl_minus_shuffled": difference(own[RL], own[SHUFFLED]),
        "rl_minus_sft_on_training": difference(seen[RL], seen[SFT]),
        "rl_steps": of_steps([row for rows in curves[WORDS[RL]] for row in rows]),
        "curves": curves,
        "settings": [one | {"base": model} for one in settings],
        "seconds": [json.loads((path / "seconds.json").read_text(encoding="utf-8")) for path in every],
        "prompts": [one["prompts"] for one in told],
        **{name: told[0][name] for name in NEEDED},
    }


def holds(result: Mapping[str, Any]) -> dict[str, bool]:
    """The claim, part by part."""
    arms = result["arms"]["held_out"]
    return {
        "RL is better than SFT": result["rl_minus_sft"]["low"] > 0,
        "shuffled rewards are not": result["shuffled_minus_sft"]["low"] <= 0,
        "hacks do not rise": arms[WORDS[RL]]["hack_rate"] <= arms[WORDS[SFT]]["hack_rate"],
    }


def main(words: list[str] | None = None) -> int:
    """Write the result, print it; 1 when the claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", help="the --out of benchmarks.learning.prove, of each fold")
    parser.add_argument("--model", default="SmolLM2-135M-Instruct", help="its name in the result")
    parser.add_argument("--result", type=Path, default=RESULT)
    options = parser.parse_args(words)
    result = conclude(options.folders, options.model)
    claim = holds(result)
    write(options.result, {**result, "claim": claim})
    for part, arms in result["arms"].items():
        for arm, shown in arms.items():
            print(f"{part:>9} {arm:<30}", *(f"{key} {value:.3f}" for key, value in shown.items()))
    for key in ("rl_minus_sft", "shuffled_minus_sft", "rl_minus_shuffled", "rl_minus_sft_on_training"):
        print(f"{key}: {result[key]['mean']:+.4f} [{result[key]['low']:+.4f}, {result[key]['high']:+.4f}]")
    print("a step of RL:", *(f"{key} {value}" for key, value in result["rl_steps"].items()))
    for part, true in claim.items():
        print("ok " if true else "BAD", part)
    return 0 if all(claim.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
