"""`verl-sft`: SFT for verl, which reads `messages` from Parquet only."""

from __future__ import annotations

from policy.exports import elite
from policy.exports.base import Format

FORMAT = Format(
    name="verl-sft",
    about="Elite steps to imitate, for verl's `MultiTurnSFTDataset` (`data.train_files=train.parquet`).",
    features=elite.FEATURES,
    select=elite.elites,
    row=elite.row,
    empty_hint=elite.EMPTY_HINT,
    notes=elite.notes,
    needs_parquet=True,
)
