"""What all SFT formats take: correct, hack-free steps that are faster than their parent, capped for each lineage."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Sequence

from evaluator.types import EvalStatus
from policy.exports.base import (
    MESSAGES,
    PROVENANCE,
    Feature,
    Options,
    Pick,
    Row,
    Selection,
    answer,
    messages,
    number,
    provenance,
)
from policy.exports.tally import Tally
from policy.types import Turn

FEATURES: dict[str, Feature] = {"messages": MESSAGES, **PROVENANCE, "gain": "float64"}
EMPTY_HINT = "SFT takes correct steps that gain 5 % or more: run longer, or export trl-grpo, which keeps all turns"


def correct(turn: Turn) -> bool:
    """Whether the child passed and nobody called it a hack."""
    return turn.status == EvalStatus.PASSED and not turn.is_hack


def gain(turn: Turn) -> float | None:
    """How much faster than its parent, 0.05 for 5 %; the speedup's lower bound counts where there is one.

    A parent that failed counts as the baseline. None for a turn that is no correct, hack-free child.
    """
    if not correct(turn) or not turn.speedup:
        return None
    found = (turn.speedup_low or turn.speedup) / (turn.parent_speedup or 1.0) - 1
    return found if math.isfinite(found) else None


def elites(turns: Sequence[Turn], options: Options) -> Selection:
    """The places of the elite steps. An answer counts once in its group, however often it was given."""
    chosen = Selection()
    lineages: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    seen: set[bytes] = set()
    for place, turn in enumerate(turns):
        found = gain(turn)
        key = answer_key(turn)
        if found is None:
            chosen.left_out["a hack" if turn.is_hack else "failed"] += 1
        elif found < options.min_gain:
            chosen.left_out[f"gains less than {options.min_gain:.0%} over its parent"] += 1
        elif key in seen:
            chosen.left_out["the same answer to the same prompt"] += 1
        else:
            seen.add(key)
            lineages[turn.run, turn.lineage].append((-found, place))
    kept = [sorted(steps)[: options.per_lineage] for steps in lineages.values()]
    over = sum(map(len, lineages.values())) - sum(map(len, kept))
    if over:
        chosen.left_out[f"beyond {options.per_lineage} of its lineage"] += over
    for place in sorted(place for steps in kept for _, place in steps):
        chosen.keep(place)
    return chosen


def answer_key(turn: Turn) -> bytes:
    """The same for one answer to one prompt of a run: a digest, so that long answers need not be kept."""
    payload = "\0".join([turn.run, turn.group, turn.answer])
    return hashlib.sha256(payload.encode("utf-8", "surrogatepass")).digest()


def row(turns: Sequence[Turn], pick: Pick, options: Options) -> Row:
    """The whole conversation, its last message the answer."""
    (turn,) = turns
    return {"messages": [*messages(turn), answer(turn)], **provenance(turn), "gain": number(gain(turn))}


def notes(tally: Tally) -> list[str]:
    """What every SFT card says."""
    return ["Every answer led to a correct, hack-free kernel that is faster than its parent (`gain`)."]
