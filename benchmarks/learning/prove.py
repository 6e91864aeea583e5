"""Does the policy learn? Trains and judges base, SFT, SFT + RL and SFT + RL on shuffled rewards, on held-out tasks too.

    python -m benchmarks.learning.prove --base MODEL --out FOLDER [--seeds 0 1 2] [--seconds 480] [--measured FILE]
    python -m benchmarks.learning.conclude FOLDER        # the intervals and the claim, when all seeds are done

Every answer that can be given was measured before (`benchmarks.learning.measure`): rewards are looked up in that table
and all arms are judged alike. Each phase of each seed leaves a file in FOLDER; the same command goes on where it was
stopped or killed. Seeds can run beside each other, each with a process of its own. Exits 3 while phases remain.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path

from benchmarks.common import provenance
from benchmarks.learning.arms import ProofSettings, Seed, Split, write
from benchmarks.learning.pairs import HELD_OUT, TRAINING
from benchmarks.learning.records import content, read

RESULTS = Path(__file__).parents[1] / "results"
UNFINISHED = 3


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, required=True, help="folder of a chat model")
    parser.add_argument("--out", type=Path, required=True, help="folder that phases leave their files in")
    parser.add_argument("--measured", type=Path, default=RESULTS / "learning_measured.jsonl.gz")
    parser.add_argument("--training", nargs="+", default=TRAINING)
    parser.add_argument("--held-out", nargs="+", default=HELD_OUT)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no phase after so many seconds")
    parser.add_argument("--answers", type=int, default=16, help="to each prompt, of each arm")
    parser.add_argument("--sft-steps", type=int, default=30)
    parser.add_argument("--sft-rate", type=float, default=2e-4)
    parser.add_argument("--rl-steps", type=int, default=60)
    parser.add_argument("--rl-rate", type=float, default=1e-4)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--answer-tokens", type=int, default=96)
    parser.add_argument("--context-tokens", type=int, default=4096)
    return parser.parse_args(words)


def settings_of(options: argparse.Namespace) -> ProofSettings:
    """Leaves 1 with a line when there is no table, or when FOLDER was begun with other settings."""
    if not options.measured.is_file():
        raise SystemExit(f"{options.measured}: no table of measured answers; benchmarks.learning.measure makes it")
    given = {name: getattr(options, name) for name in ProofSettings.model_fields}
    given |= {"base": str(options.base), "measured": hashlib.sha256(content(options.measured)).hexdigest()[:16]}
    settings = ProofSettings.model_validate(given)
    path = options.out / "settings.json"
    if not path.is_file():
        write(path, settings.model_dump(mode="json"))
    told = ProofSettings.model_validate(json.loads(path.read_text(encoding="utf-8")))
    changed = [name for name in ProofSettings.model_fields if getattr(told, name) != getattr(settings, name)]
    if changed:
        raise SystemExit(f"{options.out}: was begun with other settings: {', '.join(changed)}; give another --out")
    return settings


def main(words: list[str] | None = None) -> int:
    """Do what remains of the seeds; 3 when the time was up before all was done."""
    options = arguments(words)
    started = time.monotonic()
    settings = settings_of(options)
    rows = read(options.measured)
    splits = {"training": Split.of(settings.training, rows), "held_out": Split.of(settings.held_out, rows)}
    kind = next((row.evaluation.kind for row in rows if row.evaluation.kind), None)
    left = 0
    for number in options.seeds:
        folder = options.out / str(number)
        seed = Seed(settings, number, folder, splits)
        if seed.remaining() and not (folder / "provenance.json").is_file():
            write(folder / "provenance.json", {**provenance("-m benchmarks.learning.prove"), **machine(kind, splits)})
        for name in seed.remaining():
            if time.monotonic() - started < options.seconds:
                print(f"{time.monotonic() - started:6.0f} s  seed {number}: {name}", file=sys.stderr, flush=True)
                seed.run(name)
        left += len(seed.remaining())
    print(f"{left} phases remain: the same command goes on" if left else "all seeds are done", file=sys.stderr)
    return UNFINISHED if left else 0


def machine(kind: str | None, splits: dict[str, Split]) -> dict[str, object]:
    """What the result says of the table and the GPU."""
    import torch

    return {
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU",
        "timing_kind": kind,
        "prompts": {name: len(split.prompts) for name, split in splits.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
