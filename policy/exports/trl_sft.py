"""`trl-sft`: SFT for TRL: whole conversations of elite steps."""

from __future__ import annotations

from policy.exports import elite
from policy.exports.base import Format

FORMAT = Format(
    name="trl-sft",
    about="Elite steps to imitate, for TRL's `SFTTrainer`.",
    features=elite.FEATURES,
    select=elite.elites,
    row=elite.row,
    empty_hint=elite.EMPTY_HINT,
    notes=elite.notes,
)
