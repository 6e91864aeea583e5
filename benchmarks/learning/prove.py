"""Does the policy learn? Base, SFT, SFT + RL and SFT + RL on shuffled rewards, on held-out tasks too.

    python -m benchmarks.learning.prove --base MODEL [--measured FILE] [--seeds 0 1 2] [--rl-steps 40] [--out FILE]

Every answer that can be given was measured before (`benchmarks.learning.measure`), so that rewards are looked up and
all arms are judged alike. Held-out are four tasks with all their shapes. An arm's figures are means over prompts and
training seeds; intervals come from a bootstrap over (task, shape) pairs. The claim: RL minus SFT is above 0 on held-out
pairs, shuffled minus SFT is not, and hacks do not rise. Writes benchmarks/results/learning.json with the curves and
exits 1 when the claim does not hold: it is then said so, and nothing is tuned until it does.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import provenance
from benchmarks.learning.dataset import evaluators, sources
from benchmarks.learning.pairs import HELD_OUT, NAMES, TRAINING
from benchmarks.learning.records import Measured, RecordedEvaluator, read
from policy.training.base_model import load_model, load_tokenizer
from policy.training.choices import Choices
from policy.training.data import Prompt, Source, prompts_of
from policy.training.judging import Judge, Judged, shares
from policy.training.probe import FAILED
from policy.training.session import finetune
from policy.training.settings import TrainingSettings

RESULTS = Path(__file__).parents[1] / "results"
RESAMPLES = 10_000
CONFIDENCE = 0.95
BASE, SFT, RL, SHUFFLED = "base", "SFT", "SFT + RL", "SFT + RL on shuffled rewards"
Found = dict[str, list[list[Judged]]]
"""By pair: the judged answers to each of its prompts."""


@dataclass(frozen=True)
class Split:
    """Training or held-out pairs."""

    judging: Mapping[str, RecordedEvaluator]
    runs: Sequence[Source]
    prompts: Sequence[Prompt]


def split_of(names: Sequence[str], rows: Sequence[Measured]) -> Split:
    """Everything about some tasks."""
    judging = evaluators(names, rows)
    runs = sources(judging.values(), rows)
    return Split(judging, runs, prompts_of([turn for run in runs for turn in run.turns]))


def answered(
    settings: TrainingSettings, split: Split, adapter: str | None, count: int, *, constrained: bool = True
) -> Found:
    """`count` answers of a model to each prompt, judged; the same random numbers for every arm."""
    import torch

    from policy.training.rollouts import tokens_of
    from policy.training.sampling import sample

    tokenizer = load_tokenizer(settings.base)
    model = load_model(settings.base, adapter).eval()
    model = model.to("cuda") if torch.cuda.is_available() else model
    tasks = {name: evaluator.task for name, evaluator in split.judging.items()}
    encode = lambda text: list(tokenizer.encode(text, add_special_tokens=False))  # noqa: E731
    choices = Choices(tasks, encode, tokenizer.eos_token_id, NAMES)
    asked = [prompt for prompt in split.prompts for _ in range(count)]
    torch.manual_seed(settings.seed + 1_000_003)
    answers = sample(
        model,
        [tokens_of(tokenizer, prompt) for prompt in asked],
        [choices.tree(prompt) if constrained else None for prompt in asked],
        end=[tokenizer.eos_token_id],
        tokens=settings.answer_tokens,
        temperature=settings.temperature,
        at_once=64,
    )
    texts = tokenizer.batch_decode([one.tokens for one in answers], skip_special_tokens=True)
    cut = [one.tokens[-1] != tokenizer.eos_token_id for one in answers]
    judged = Judge(split.judging).judge(list(zip(asked, texts, cut, strict=True)))
    found: Found = defaultdict(list)
    for index, prompt in enumerate(split.prompts):
        found[prompt.task].append(judged[index * count : (index + 1) * count])
    return dict(found)


def figures(found: Iterable[Found]) -> dict[str, float]:
    """Shares over all answers of all training seeds; unknown answers count as failed."""
    answers = [one for seed in found for groups in seed.values() for group in groups for one in group]
    return {name: round(value, 4) for name, value in shares(answers, 1).items() if name != "zero_variance"}


def by_pair(found: Sequence[Found]) -> dict[str, float]:
    """Mean reward of each pair, over prompts, answers and training seeds."""
    rewards: dict[str, list[float]] = defaultdict(list)
    for seed in found:
        for pair, groups in seed.items():
            rewards[pair] += [FAILED if one.reward is None else one.reward for group in groups for one in group]
    return {pair: float(np.mean(values)) for pair, values in rewards.items()}


def difference(first: Sequence[Found], second: Sequence[Found], seed: int = 0) -> dict[str, float]:
    """Mean reward of the first minus the second, with the bootstrap's interval over pairs."""
    a, b = by_pair(first), by_pair(second)
    deltas = np.array([a[pair] - b[pair] for pair in sorted(a)])
    rng = np.random.default_rng(seed)
    means = deltas[rng.integers(0, len(deltas), (RESAMPLES, len(deltas)))].mean(axis=1)
    low, high = np.quantile(means, ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
    return {"mean": float(deltas.mean()), "low": float(low), "high": float(high)}


def trained(options: argparse.Namespace, split: Split, seed: int, folder: Path) -> dict[str, Path]:
    """The adapters of one training seed by arm."""
    common: dict[str, Any] = {"base": str(options.base), "seed": seed, "group": options.group, "rewrites": NAMES}
    common |= {"answer_tokens": options.answer_tokens, "context_tokens": options.context_tokens}
    sft = TrainingSettings(method="sft", steps=options.sft_steps, learning_rate=options.sft_rate, **common)
    arms = {SFT: folder / "sft"}
    finetune(sft, split.runs, split.judging, arms[SFT])
    for arm, shuffled in ((RL, False), (SHUFFLED, True)):
        arms[arm] = folder / ("shuffled" if shuffled else "rl")
        settings = TrainingSettings(
            method="trloo",
            steps=options.rl_steps,
            learning_rate=options.rl_rate,
            adapter=str(arms[SFT]),
            shuffled=shuffled,
            prompts=options.prompts,
            **common,
        )
        finetune(settings, split.runs, split.judging, arms[arm])
    return arms


def curve(folder: Path) -> list[dict[str, Any]]:
    """What a training logged, step by step."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def prove(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All arms of all seeds."""
    rows = read(options.measured)
    training, held_out = split_of(options.training, rows), split_of(options.held_out, rows)
    found: dict[str, dict[str, list[Found]]] = {"training": defaultdict(list), "held_out": defaultdict(list)}
    free: dict[str, list[Found]] = defaultdict(list)
    curves: dict[str, list[Any]] = defaultdict(list)
    for seed in options.seeds:
        settings = TrainingSettings(
            method="sft", base=str(options.base), seed=seed, answer_tokens=options.answer_tokens, group=options.group
        )
        arms: dict[str, Path | None] = {BASE: None, **trained(options, training, seed, folder / str(seed))}
        for arm, path in arms.items():
            adapter = None if path is None else str(path)
            for name, split in (("training", training), ("held_out", held_out)):
                found[name][arm].append(answered(settings, split, adapter, options.answers))
            if arm in (BASE, SFT):
                free[arm].append(answered(settings, held_out, adapter, options.answers, constrained=False))
            if path is not None:
                curves[arm].append(curve(path))
    own = found["held_out"]
    return {
        "pairs": {"training": sorted(training.judging), "held_out": sorted(held_out.judging)},
        "prompts": {"training": len(training.prompts), "held_out": len(held_out.prompts)},
        "timing_kind": next(row.evaluation.kind for row in rows if row.evaluation.kind),
        "arms": {name: {arm: figures(part[arm]) for arm in part} for name, part in found.items()},
        "valid_without_constraint": {arm: figures(free[arm])["valid"] for arm in free},
        "rl_minus_sft": difference(own[RL], own[SFT]),
        "shuffled_minus_sft": difference(own[SHUFFLED], own[SFT]),
        "rl_minus_sft_on_training": difference(found["training"][RL], found["training"][SFT]),
        "curves": curves,
    }


def holds(result: Mapping[str, Any]) -> dict[str, bool]:
    """The claim, part by part."""
    arms = result["arms"]["held_out"]
    return {
        "RL is better than SFT": result["rl_minus_sft"]["low"] > 0,
        "shuffled rewards are not": result["shuffled_minus_sft"]["low"] <= 0,
        "hacks do not rise": arms[RL]["hack_rate"] <= arms[SFT]["hack_rate"],
    }


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, required=True, help="folder of a chat model")
    parser.add_argument("--measured", type=Path, default=RESULTS / "learning_measured.jsonl.gz")
    parser.add_argument("--training", nargs="+", default=TRAINING)
    parser.add_argument("--held-out", nargs="+", default=HELD_OUT)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--answers", type=int, default=16, help="to each prompt, of each arm")
    parser.add_argument("--sft-steps", type=int, default=30)
    parser.add_argument("--sft-rate", type=float, default=2e-4)
    parser.add_argument("--rl-steps", type=int, default=40)
    parser.add_argument("--rl-rate", type=float, default=1e-4)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--answer-tokens", type=int, default=96)
    parser.add_argument("--context-tokens", type=int, default=4096)
    parser.add_argument("--out", type=Path, default=RESULTS / "learning.json")
    return parser.parse_args()


def main() -> int:
    """Train, measure, print a table; 1 when the claim does not hold."""
    options = arguments()
    context, started = provenance("-m benchmarks.learning.prove"), time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="kernevo-proof-") as name:
        result = prove(options, Path(name))
    claim = holds(result)
    whole = {**result, "claim": claim, "seconds": round(time.perf_counter() - started, 1), **context}
    options.out.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    for part, arms in result["arms"].items():
        for arm, shown in arms.items():
            print(f"{part:>9} {arm:<30}", *(f"{key} {value:.3f}" for key, value in shown.items()))
    for key in ("rl_minus_sft", "shuffled_minus_sft", "rl_minus_sft_on_training"):
        print(f"{key}: {result[key]['mean']:+.4f} [{result[key]['low']:+.4f}, {result[key]['high']:+.4f}]")
    for part, true in claim.items():
        print("ok " if true else "BAD", part)
    return 0 if all(claim.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
