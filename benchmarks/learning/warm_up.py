"""How many steps of SFT leave something to explore? Looks at training tasks only; its answer is `--sft-steps`.

    python -m benchmarks.learning.warm_up --base MODEL --out FOLDER [--steps 3 6 12 24] [--fold 1]

The rule, fixed before any arm was judged: the most steps after which groups of answers hold at least half as many
different ones as the base model's (half is also where the entropy alarm of a training rings). Trains with a seed that
the proof does not use. Writes FOLDER/warm_up.json and prints a table.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import provenance
from benchmarks.learning.arms import BASE, SFT, ProofSettings, Seed, Split, write
from benchmarks.learning.conclude import Found, load
from benchmarks.learning.prove import arguments_parser, settings_of
from benchmarks.learning.records import read
from policy.training.alarms import ENTROPY
from policy.training.judging import shares

SEED = 1000
"""Of the trainings here."""


def different(found: Found, group: int) -> float:
    """Different children / answers, in groups of `group` answers to one prompt; the mean over groups."""
    answers = [one for groups in found.values() for one in groups]
    parts = [one[start : start + group] for one in answers for start in range(0, len(one), group)]
    return sum(len({one.program for one in part}) / len(part) for part in parts) / len(parts)


def row(steps: int, found: Found, group: int) -> dict[str, float]:
    """What answers to training prompts look like after so many steps."""
    answers = [one for groups in found.values() for part in groups for one in part]
    told = shares(answers, group)
    kept = {name: round(told[name], 4) for name in ("mean_reward", "valid", "correct", "zero_variance")}
    return {"steps": steps, "different": round(different(found, group), 4), **kept}


def chosen(rows: Sequence[dict[str, float]]) -> int:
    """The most steps with at least half of the base's variety, whose row comes first; the fewest where none has."""
    base, *trained = rows
    enough = [int(one["steps"]) for one in trained if one["different"] >= ENTROPY * base["different"]]
    return max(enough, default=int(min(one["steps"] for one in trained)))


def look(settings: ProofSettings, steps: Sequence[int], folder: Path, split: Split) -> list[dict[str, float]]:
    """A row for the base, then one for each number of steps; what is done already is not done again."""
    rows = []
    for count in (0, *sorted(steps)):
        arm = SFT if count else BASE
        seed = Seed(settings.model_copy(update={"sft_steps": count}), SEED, folder / str(count), {"training": split})
        for phase in (SFT, f"{SFT}.training") if count else (f"{BASE}.training",):
            if phase in seed.remaining():
                seed.run(phase)
        rows.append(row(count, load(folder / str(count) / f"{arm}.training.json"), settings.group))
        print("  ".join(f"{name} {value:g}" for name, value in rows[-1].items()), file=sys.stderr, flush=True)
    return rows


def main(words: list[str] | None = None) -> int:
    """Train, look, choose."""
    parser = arguments_parser(__doc__ or "")
    parser.add_argument("--steps", nargs="+", type=int, default=[3, 6, 12, 24])
    options: argparse.Namespace = parser.parse_args(words)
    settings = settings_of(options)
    split = Split.of(settings.training, read(options.measured))
    rows = look(settings, options.steps, options.out, split)
    found: dict[str, Any] = {"rows": rows, "chosen": chosen(rows), "settings": settings.model_dump(mode="json")}
    write(options.out / "warm_up.json", {**found, **provenance("-m benchmarks.learning.warm_up")})
    print(f"chosen: {found['chosen']} steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
