"""`trl-grpo`: one row for each judged answer, failures included, prompts conversational.

TRL's GRPOTrainer samples answers of its own from `prompt`; the extra columns reach its reward functions. For that use
keep one row of each `group`. For offline use every row already holds an answer and what it earned.
"""

from __future__ import annotations

from collections.abc import Sequence

from policy.exports.base import (
    COMPONENTS,
    MESSAGES,
    PROVENANCE,
    Format,
    Options,
    Pick,
    Row,
    Selection,
    as_json,
    messages,
    number,
    provenance,
    text,
)
from policy.exports.tally import Tally
from policy.types import Turn


def _select(turns: Sequence[Turn], options: Options) -> Selection:
    chosen = Selection()
    for place, turn in enumerate(turns):
        if turn.is_hack and turn.reward > 0:
            chosen.left_out["a hack with a positive reward"] += 1
        else:
            chosen.keep(place)
    return chosen


def _row(turns: Sequence[Turn], pick: Pick, options: Options) -> Row:
    (turn,) = turns
    return {
        "prompt": messages(turn),
        **provenance(turn),
        "reward_type": turn.reward_type,
        "reward_components": {name: number(value) for name, value in turn.reward_components.items()},
        "is_hack": turn.is_hack,
        "coverage": number(turn.coverage),
        "answer": text(turn.answer),
        "source": text(turn.source),
        "source_sha": turn.source_sha,
        "ast_hash": turn.ast_hash,
        "parent_source": text(turn.parent_source),
        "has_logprobs": turn.logprobs is not None,
        "sampling": as_json(turn.sampling),
        "seeds": as_json(turn.seeds),
        "versions": as_json(turn.versions),
    }


def _notes(tally: Tally) -> list[str]:
    notes = ["Rows of one `group` share one prompt. To sample new answers in a trainer, keep one row of each group."]
    if tally.without_logprobs:
        notes.append(
            f"{tally.without_logprobs} of {tally.turns} rows have no sampling logprobs: good for on-policy training "
            "from the prompts, for SFT, DPO and KTO, not for importance-corrected training on the stored answers."
        )
    return notes


FORMAT = Format(
    name="trl-grpo",
    about="Prompts with judged answers for GRPO, for TRL's `GRPOTrainer`.",
    features={
        "prompt": MESSAGES,
        **PROVENANCE,
        "reward_type": "string",
        "reward_components": COMPONENTS,
        "is_hack": "bool",
        "coverage": "float64",
        "answer": "string",
        "source": "string",
        "source_sha": "string",
        "ast_hash": "string",
        "parent_source": "string",
        "has_logprobs": "bool",
        "sampling": "string",
        "seeds": "string",
        "versions": "string",
    },
    select=_select,
    row=_row,
    empty_hint="a run has turns once its policy has proposed children: let it judge more than the seed",
    notes=_notes,
    compares_rewards=True,
)
