"""`openevolve`: the steps of a run as OpenEvolve's evolution traces, failures included."""

from __future__ import annotations

from collections.abc import Sequence

from policy.exports.base import PROVENANCE, Feature, Format, Options, Pick, Row, Selection, number, provenance, text
from policy.types import Turn

METRICS: Feature = {"combined_score": "float64", "speedup": "float64", "correct": "float64"}
CHILD_METRICS: Feature = {"combined_score": "float64", "speedup": "float64", "correct": "float64", "reward": "float64"}


def _select(turns: Sequence[Turn], options: Options) -> Selection:
    chosen = Selection()
    for place, turn in enumerate(turns):
        if not turn.parent_ids:
            chosen.left_out["no parent"] += 1
        elif turn.is_hack and turn.reward > 0:
            chosen.left_out["a hack with a positive reward"] += 1
        else:
            chosen.keep(place)
    return chosen


def _metrics(speedup: float | None) -> Row:
    """OpenEvolve's own score is `combined_score`, higher is better; a failure has speedup 0."""
    known = number(speedup) or 0.0
    return {"combined_score": known, "speedup": known, "correct": float(known > 0)}


def _row(turns: Sequence[Turn], pick: Pick, options: Options) -> Row:
    (turn,) = turns
    before, after = _metrics(turn.parent_speedup), _metrics(None if turn.is_hack else turn.speedup)
    prompt = {
        role: "\n\n".join(text(message.content) for message in turn.messages if message.role == role)
        for role in ("system", "user")
    }
    return {
        "iteration": pick.places[0],
        "timestamp": None,
        "parent_id": turn.parent_ids[0],
        "child_id": turn.candidate_id,
        "parent_metrics": before,
        "child_metrics": {**after, "reward": number(turn.reward)},
        "improvement_delta": {name: after[name] - before[name] for name in before},
        "parent_code": text(turn.parent_source),
        "child_code": text(turn.source),
        "prompt": prompt,
        "llm_response": text(turn.answer),
        "island_id": turn.island,
        "generation": turn.generation,
        "metadata": provenance(turn),
    }


FORMAT = Format(
    name="openevolve",
    about="Evolution traces for OpenEvolve's `load_traces`.",
    features={
        "iteration": "int64",
        "timestamp": "float64",
        "parent_id": "string",
        "child_id": "string",
        "parent_metrics": METRICS,
        "child_metrics": CHILD_METRICS,
        "improvement_delta": METRICS,
        "parent_code": "string",
        "child_code": "string",
        "prompt": {"system": "string", "user": "string"},
        "llm_response": "string",
        "island_id": "int64",
        "generation": "int64",
        "metadata": dict(PROVENANCE),
    },
    select=_select,
    row=_row,
    empty_hint="a run has steps once its policy has proposed children: let it judge more than the seed",
    notes=lambda tally: [
        "`combined_score` is the speedup over the baseline, 0 for a failure; `timestamp` is not recorded."
    ],
)
