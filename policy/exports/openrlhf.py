"""`openrlhf`: prompts for OpenRLHF's `PromptDataset`; the label is what an answer is judged by."""

from __future__ import annotations

from collections.abc import Sequence

from policy.exports import online
from policy.exports.base import MESSAGES, PROVENANCE, Format, Options, Pick, Row, messages, provenance
from policy.types import Turn


def _row(turns: Sequence[Turn], pick: Pick, options: Options) -> Row:
    (turn,) = turns
    return {
        "input": messages(turn),
        "label": online.ground_truth(turn, options),
        "datasource": online.data_source(turn),
        **provenance(turn),
    }


FORMAT = Format(
    name="openrlhf",
    about="Prompts for OpenRLHF's `PromptDataset` (input_key `input`, label_key `label`, apply_chat_template).",
    features={"input": MESSAGES, "label": "string", "datasource": "string", **PROVENANCE},
    select=online.prompts,
    row=_row,
    empty_hint=online.EMPTY_HINT,
    notes=online.notes,
    needs_task=True,
)
