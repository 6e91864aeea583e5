"""`trl-sft`: the steps worth imitating: correct, no hack, faster than their parent, capped for each lineage."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from evaluator.types import EvalStatus
from policy.exports.base import PROVENANCE, Format, Options, Row, messages, number, provenance, text
from policy.types import Turn


def gain(turn: Turn) -> float | None:
    """How much faster than its parent, 0.05 for 5 %; the speedup's lower bound counts where there is one.

    A parent that failed counts as the baseline. None for a turn that is no correct, hack-free child.
    """
    if turn.status != EvalStatus.PASSED or turn.is_hack or not turn.speedup:
        return None
    found = (turn.speedup_low or turn.speedup) / (turn.parent_speedup or 1.0) - 1
    return found if math.isfinite(found) else None


def _select(turns: Sequence[Turn], options: Options) -> list[Turn]:
    lineages: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    seen: set[tuple[str, str]] = set()
    for index, turn in enumerate(turns):
        found = gain(turn)
        if found is None or found < options.min_gain or (turn.group, turn.answer) in seen:
            continue
        seen.add((turn.group, turn.answer))
        lineages[turn.run, turn.lineage].append((-found, index))
    kept = sorted(index for steps in lineages.values() for _, index in sorted(steps)[: options.per_lineage])
    return [turns[index] for index in kept]


def _row(turn: Turn) -> Row:
    answer = {"role": "assistant", "content": text(turn.answer)}
    return {"messages": [*messages(turn), answer], **provenance(turn), "gain": number(gain(turn))}


def _notes(turns: Sequence[Turn]) -> list[str]:
    return ["Every answer led to a correct, hack-free kernel that is faster than its parent (`gain`)."]


FORMAT = Format(
    name="trl-sft",
    about="Elite steps to imitate, for TRL's `SFTTrainer`.",
    features={"messages": "messages", **PROVENANCE, "gain": "float64"},
    select=_select,
    row=_row,
    empty_hint="SFT takes correct steps that gain 5 % or more: run longer, or export trl-grpo, which keeps all turns",
    notes=_notes,
)
