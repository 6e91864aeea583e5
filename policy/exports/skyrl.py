"""`skyrl`: prompts for SkyRL's `PromptDataset`, for an environment class that the user registers as `kernevo`."""

from __future__ import annotations

from collections.abc import Sequence

from policy.exports import online
from policy.exports.base import MESSAGES, PROVENANCE, Format, Options, Pick, Row, messages, provenance
from policy.types import Turn

ENV_CLASS = "kernevo"


def _row(turns: Sequence[Turn], pick: Pick, options: Options) -> Row:
    (turn,) = turns
    return {
        "data_source": online.data_source(turn),
        "prompt": messages(turn),
        "env_class": ENV_CLASS,
        "reward_spec": {"method": "rule", "ground_truth": online.ground_truth(turn, options)},
        "extra_info": provenance(turn),
    }


FORMAT = Format(
    name="skyrl",
    about=f"Prompts for SkyRL's `PromptDataset`; the environment is called `{ENV_CLASS}`.",
    features={
        "data_source": "string",
        "prompt": MESSAGES,
        "env_class": "string",
        "reward_spec": {"method": "string", "ground_truth": "string"},
        "extra_info": dict(PROVENANCE),
    },
    select=online.prompts,
    row=_row,
    empty_hint=online.EMPTY_HINT,
    notes=online.notes,
    needs_task=True,
)
