"""`prime-sft`: SFT for prime-rl, which reads `messages` by `datasets.load_dataset` and trains on the assistant's."""

from __future__ import annotations

from policy.exports import elite
from policy.exports.base import Format

FORMAT = Format(
    name="prime-sft",
    about="Elite steps to imitate, for prime-rl's `sft` (`data.name` is this folder).",
    features=elite.FEATURES,
    select=elite.elites,
    row=elite.row,
    empty_hint=elite.EMPTY_HINT,
    notes=elite.notes,
)
