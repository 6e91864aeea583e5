"""`trl-dpo`: the best child of a parent against each child of the same parent, under the same prompt, that is worse."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

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
    number,
    provenance,
)
from policy.exports.elite import correct
from policy.types import Turn

MARGIN = 0.05
"""Least difference of rewards: two kernels that are about as fast are no preference."""

EMPTY_HINT = "pairs are children of one parent under one prompt, of which one is correct and better: run longer"


class _Child(NamedTuple):
    """What pairing needs to know of a turn."""

    place: int
    reward: float
    correct: bool
    answer: bytes


def pairs(turns: Sequence[Turn]) -> Selection:
    """The places of each pair, the better turn first; training and the export pair alike."""
    families: dict[bytes, list[_Child]] = defaultdict(list)
    for place, turn in enumerate(turns):
        families[_family(turn)].append(_Child(place, turn.reward, correct(turn), _digest(turn.answer)))
    chosen = Selection()
    for family in families.values():
        best = max((child for child in family if child.correct), key=lambda child: child.reward, default=None)
        if best is None:
            chosen.left_out["no child of its parent is correct"] += len(family)
        else:
            _pair(best, family, chosen)
    return chosen


def _select(turns: Sequence[Turn], options: Options) -> Selection:
    return pairs(turns)


def _pair(best: _Child, family: list[_Child], chosen: Selection) -> None:
    seen = {best.answer}
    paired = False
    for child in family:
        if child is best:
            continue
        if child.answer in seen:
            chosen.left_out["the same answer to the same prompt"] += 1
        elif best.reward - child.reward < MARGIN:
            chosen.left_out[f"within {MARGIN} of the best child's reward"] += 1
        else:
            seen.add(child.answer)
            chosen.keep(best.place, child.place)
            paired = True
    if not paired:
        chosen.left_out["nothing worse to compare with"] += 1


def _family(turn: Turn) -> bytes:
    """The same for children of one parent under one prompt, whichever policy answered it."""
    prompt = [message.model_dump() for message in turn.messages]
    return _digest(json.dumps([turn.run, turn.parent_ids[:1], prompt]))


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()


def _row(turns: Sequence[Turn], pick: Pick, options: Options) -> Row:
    better, worse = turns
    return {
        "prompt": messages(better),
        "chosen": [answer(better)],
        "rejected": [answer(worse)],
        **provenance(better),
        "rejected_id": worse.candidate_id,
        "rejected_status": worse.status,
        "rejected_reward": number(worse.reward),
    }


FORMAT = Format(
    name="trl-dpo",
    about="Pairs of answers to one prompt about one parent, for TRL's `DPOTrainer`.",
    features={
        "prompt": MESSAGES,
        "chosen": MESSAGES,
        "rejected": MESSAGES,
        **PROVENANCE,
        "rejected_id": "string",
        "rejected_status": "string",
        "rejected_reward": "float64",
    },
    select=_select,
    row=_row,
    empty_hint=EMPTY_HINT,
    notes=lambda tally: ["`chosen` is correct and no hack. Columns without `rejected_` tell of the chosen answer."],
    compares_rewards=True,
)
