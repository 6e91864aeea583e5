"""A training in a process of its own, for the test that kills it: `python -m tests.policy.training.driver MODEL OUT`.

After each checkpoint it says so on stdout and waits for a line on stdin.
"""

from __future__ import annotations

import sys
from pathlib import Path

from policy.training.session import finetune
from tests.policy.training import world


def settings(model: str):
    """Four steps with a checkpoint after each."""
    return world.settings(method="sft", base=model, steps=4)


def main(model: str, out: str) -> None:
    from transformers import Trainer

    saved = Trainer._save_checkpoint

    def wait(self, *args) -> None:
        saved(self, *args)
        print(f"saved {self.state.global_step}", flush=True)
        sys.stdin.readline()

    Trainer._save_checkpoint = wait
    finetune(settings(model), [world.source()], {}, Path(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
