"""`prime-rl`: answers as token ids with their logprobs and advantages, the fields of prime-rl's `TrainingSample`."""

from __future__ import annotations

from collections.abc import Sequence

from policy.advantages import rloo
from policy.exports.base import PROVENANCE, Format, Options, Pick, Row, Selection, provenance
from policy.exports.tally import Tally
from policy.types import Turn


def _select(turns: Sequence[Turn], options: Options) -> Selection:
    chosen = Selection()
    places: list[int] = []
    rewards: list[float] = []
    groups: list[tuple[str, str]] = []
    hacks: list[bool] = []
    for place, turn in enumerate(turns):
        if why := turn.importance_gap or _more(turn):
            chosen.left_out[why] += 1
            continue
        places.append(place)
        rewards.append(turn.reward)
        groups.append((turn.run, turn.group))
        hacks.append(turn.is_hack)
    for place, advantage, hack in zip(places, rloo(rewards, groups), hacks, strict=True):
        # Under rewards that punish slow kernels a hack may beat its group; it must not be reinforced.
        chosen.keep(place, advantage=min(0.0, float(advantage)) if hack else float(advantage))
    return chosen


def _more(turn: Turn) -> str:
    if turn.is_hack and turn.reward > 0:
        return "a hack with a positive reward"
    return "" if _temperature(turn) is not None else "no sampling temperature"


def _temperature(turn: Turn) -> float | None:
    found = turn.sampling.get("temperature")
    return float(found) if isinstance(found, int | float) and found > 0 else None


def _row(turns: Sequence[Turn], pick: Pick, options: Options) -> Row:
    (turn,) = turns
    prompt, answer = list(turn.prompt_token_ids or ()), list(turn.answer_token_ids or ())
    before = len(prompt)
    return {
        "token_ids": prompt + answer,
        "mask": [False] * before + [True] * len(answer),
        "logprobs": [0.0] * before + list(turn.logprobs or ()),
        "temperatures": [_temperature(turn)] * (before + len(answer)),
        "env_name": f"kernevo/{turn.task}",
        "advantages": [0.0] * before + [pick.values["advantage"]] * len(answer),
        **provenance(turn),
    }


def _notes(tally: Tally) -> list[str]:
    return [
        "All lists of a row are as long as `token_ids`; `mask` is true for the answer's. Advantages are leave-one-out "
        "within a `group`, the same for every token of an answer, 0 for a group of one, never above 0 for a hack."
    ]


FORMAT = Format(
    name="prime-rl",
    about="Sampled answers as tokens with logprobs and advantages, for prime-rl's `TrainingSample`.",
    features={
        "token_ids": ["int64"],
        "mask": ["bool"],
        "logprobs": ["float64"],
        "temperatures": ["float64"],
        "env_name": "string",
        "advantages": ["float64"],
        **PROVENANCE,
    },
    select=_select,
    row=_row,
    empty_hint="answers need token ids and logprobs: ask a vLLM server with policy.logprobs=true",
    notes=_notes,
    compares_rewards=True,
    needs_logprobs=True,
)
