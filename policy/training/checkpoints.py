"""Checkpoints of a training: which one is whole. Needs no torch."""

from __future__ import annotations

import json
from pathlib import Path

STATE = "trainer_state.json"
"""What transformers writes last into a checkpoint."""


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that was written to its end; None when there is none."""
    found = [path for path in folder.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdecimal()]
    whole = [path for path in found if step_of(path) is not None]
    return max(whole, key=lambda path: step_of(path) or 0, default=None)


def step_of(checkpoint: Path) -> int | None:
    """Steps that a checkpoint has behind it; None for one that a kill cut short."""
    try:
        return int(json.loads((checkpoint / STATE).read_text(encoding="utf-8"))["global_step"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
