"""For trainers that sample answers of their own: each prompt once, with what answers to it are judged by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from policy.exports.base import Options, Selection
from policy.exports.tally import Tally
from policy.scoring import GroundTruth
from policy.types import Turn

EMPTY_HINT = "a run has prompts once its policy has been asked for children: let it judge more than the seed"
ABILITY = "triton-kernel"


def prompts(turns: Sequence[Turn], options: Options) -> Selection:
    """The first turn of every group whose prompt asks for a kernel."""
    chosen = Selection()
    seen: set[tuple[str, str]] = set()
    for place, turn in enumerate(turns):
        if turn.sampling.get("form") == "tunables":
            chosen.left_out["asks for values of tunables, not for a kernel"] += 1
        elif (turn.run, turn.group) in seen:
            chosen.left_out["another answer to a prompt that is there already"] += 1
        else:
            seen.add((turn.run, turn.group))
            chosen.keep(place)
    return chosen


def ground_truth(turn: Turn, options: Options) -> str:
    """What `policy.scoring` judges an answer to the turn's prompt by, as JSON."""
    truth = GroundTruth(
        task=options.tasks[turn.run],
        # JSON holds no unpaired surrogate; a source with one does not compile either.
        parent_source=turn.parent_source.encode("utf-8", "replace").decode(),
        form=turn.sampling.get("form"),
    )
    return truth.model_dump_json()


def data_source(turn: Turn) -> str:
    """Names the task, so that trainers average rewards by it."""
    return f"kernevo/{turn.task}"


def judge_settings(tally: Tally) -> tuple[dict[str, Any], dict[str, Any]]:
    """The evaluator and reward sections that judge new answers as most of the exported ones were judged."""
    (kind, target), _ = max(tally.judges.items(), key=lambda item: item[1], default=(("measured", "h200"), 0))
    evaluator = {"type": "gpu", "duplicates": "judge"} if kind == "measured" else {"type": "cpu"}
    name, _, scale = next(iter(tally.reward_types)).partition(" * ")
    return {**evaluator, "target": target or "h200"}, {"type": name, **({"scale": float(scale)} if scale else {})}


def notes(tally: Tally) -> list[str]:
    """What the cards of these formats say."""
    return [
        "Each prompt occurs once and rows hold no answers: the trainer samples its own. `policy.scoring` judges them "
        "by the row's ground truth, which holds the task and the parent's source."
    ]
