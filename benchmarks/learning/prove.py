"""Does the policy learn? Trains and judges base, SFT, SFT + RL and SFT + RL on shuffled rewards, on held-out tasks too.

    python -m benchmarks.learning.prove --base MODEL --out FOLDER/1 --fold 1 [--seeds 0 1 2] [--seconds 480]
    python -m benchmarks.learning.prove --base MODEL --out FOLDER/2 --fold 2
    python -m benchmarks.learning.conclude FOLDER/1 FOLDER/2        # the intervals and the claim, when all is done

The second fold trains on what the first one holds out, and the other way round.

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
from benchmarks.learning.pairs import FOLDS
from benchmarks.learning.records import content, read

RESULTS = Path(__file__).parents[1] / "results"
UNFINISHED = 3


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    return arguments_parser(__doc__ or "").parse_args(words)


def arguments_parser(description: str) -> argparse.ArgumentParser:
    """What a proof is asked for."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, required=True, help="folder of a chat model")
    parser.add_argument("--out", type=Path, required=True, help="folder that phases leave their files in")
    parser.add_argument("--measured", type=Path, default=RESULTS / "learning_measured.jsonl.gz")
    parser.add_argument("--fold", type=int, choices=sorted(FOLDS), default=1, help="which half of the tasks trains")
    parser.add_argument("--training", nargs="+", help="other tasks to train on than the fold's")
    parser.add_argument("--held-out", nargs="+", help="other tasks to hold out than the fold's")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no phase after so many seconds")
    parser.add_argument("--answers", type=int, default=16, help="to each prompt, of each arm")
    parser.add_argument("--sft-steps", type=int, default=24)
    parser.add_argument("--sft-rate", type=float, default=2e-4)
    parser.add_argument("--rl-steps", type=int, default=40)
    parser.add_argument("--rl-rate", type=float, default=1e-4)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--micro-batch", type=int, default=64)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--answer-tokens", type=int, default=96)
    parser.add_argument("--context-tokens", type=int, default=4096)
    return parser


def settings_of(options: argparse.Namespace) -> ProofSettings:
    """Leaves 1 with a line when there is no table, or when FOLDER was begun with other settings."""
    if not options.measured.is_file():
        raise SystemExit(f"{options.measured}: no table of measured answers; benchmarks.learning.measure makes it")
    training, held_out = FOLDS[options.fold]
    given = {name: getattr(options, name) for name in ProofSettings.model_fields}
    given |= {"training": options.training or training, "held_out": options.held_out or held_out}
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
