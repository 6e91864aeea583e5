"""`trl-kto`: single answers, liked when the step gained, disliked when it failed, cheated or lost speed."""

from __future__ import annotations

from collections.abc import Sequence

from policy.exports.base import (
    MESSAGES,
    PROVENANCE,
    Format,
    Options,
    Pick,
    Row,
    Selection,
    answer,
    messages,
    provenance,
)
from policy.exports.elite import answer_key, gain
from policy.exports.tally import Tally
from policy.types import Turn


def _select(turns: Sequence[Turn], options: Options) -> Selection:
    chosen = Selection()
    seen: set[bytes] = set()
    for place, turn in enumerate(turns):
        found, key = gain(turn), answer_key(turn)
        if key in seen:
            chosen.left_out["the same answer to the same prompt"] += 1
        elif found is not None and 0 <= found < options.min_gain:
            chosen.left_out[f"neither slower than its parent nor {options.min_gain:.0%} faster"] += 1
        else:
            seen.add(key)
            chosen.keep(place, label=found is not None and found > 0)
    return chosen


def _row(turns: Sequence[Turn], pick: Pick, options: Options) -> Row:
    (turn,) = turns
    return {"prompt": messages(turn), "completion": [answer(turn)], "label": pick.values["label"], **provenance(turn)}


def _notes(tally: Tally) -> list[str]:
    liked = tally.values["label", True]
    notes = [f"{liked} answers are liked and {tally.turns - liked} disliked."]
    if not liked or liked == tally.turns:
        notes.append("One kind of answer is missing: KTO needs both.")
    return notes


FORMAT = Format(
    name="trl-kto",
    about="Answers with a thumb up or down, for TRL's `KTOTrainer`.",
    features={"prompt": MESSAGES, "completion": MESSAGES, "label": "bool", **PROVENANCE},
    select=_select,
    row=_row,
    empty_hint="KTO takes steps that gained, lost or failed: let the run judge more than the seed",
    notes=_notes,
)
