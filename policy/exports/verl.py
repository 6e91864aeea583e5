"""`verl`: prompts for verl's `RLHFDataset`, and the reward function that judges what it samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from policy.exports import online
from policy.exports.base import MESSAGES, PROVENANCE, Format, Options, Pick, Row, messages, provenance
from policy.exports.tally import Tally
from policy.types import Turn

SCORE_FILE = "compute_score.py"
SCORE = '''"""Judges answers to this dataset's prompts with Kernevo's evaluator.

Kernevo must be installed where verl runs.

    reward.custom_reward_function.path=PATH/OF/THIS/FOLDER/{file}

`reward.custom_reward_function.reward_kwargs` may give another `evaluator` or `reward`, as in a campaign's config.
"""

from policy.scoring import compute_score as judge

EVALUATOR = {evaluator!r}
REWARD = {reward!r}


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **settings):
    """A dict with `score`; the other entries reach verl's metrics."""
    return judge(
        data_source,
        solution_str,
        ground_truth,
        extra_info,
        **{{"evaluator": EVALUATOR, "reward": REWARD, **settings}},
    )
'''


def _row(turns: Sequence[Turn], pick: Pick, options: Options) -> Row:
    (turn,) = turns
    return {
        "prompt": messages(turn),
        "data_source": online.data_source(turn),
        "ability": online.ABILITY,
        "reward_model": {"style": "rule", "ground_truth": online.ground_truth(turn, options)},
        "extra_info": {"index": pick.places[0], **provenance(turn)},
    }


def _files(tally: Tally) -> Mapping[str, str]:
    evaluator, reward = online.judge_settings(tally)
    return {SCORE_FILE: SCORE.format(file=SCORE_FILE, evaluator=evaluator, reward=reward)}


def _notes(tally: Tally) -> list[str]:
    return [*online.notes(tally), f"`{SCORE_FILE}` is the reward function: `custom_reward_function.path` names it."]


FORMAT = Format(
    name="verl",
    about="Prompts for verl's `RLHFDataset` (`data.train_files=train.parquet`) with their reward function.",
    features={
        "prompt": MESSAGES,
        "data_source": "string",
        "ability": "string",
        "reward_model": {"style": "string", "ground_truth": "string"},
        "extra_info": {"index": "int64", **PROVENANCE},
    },
    select=online.prompts,
    row=_row,
    empty_hint=online.EMPTY_HINT,
    notes=_notes,
    files=_files,
    compares_rewards=True,
    needs_task=True,
    needs_parquet=True,
)
