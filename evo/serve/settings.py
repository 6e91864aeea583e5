"""From --evaluator and --set to the judges' settings and the reward, with the config's own checks and words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evaluator.errors import UsageError
from evo.config import EvaluatorConfig, GpuEvaluatorConfig
from evo.config_file import load_mapping
from policy.reward import RewardSettings

_SECTIONS = ("evaluator.", "reward.")
# A kernel that was sent before must not be worth less for that.
_DEFAULTS: dict[str, dict[str, Any]] = {"gpu": {"duplicates": "judge"}}


def judging_settings(evaluator: str, overrides: Sequence[str]) -> tuple[EvaluatorConfig, RewardSettings]:
    """Raises UsageError for whatever a user can get wrong in them."""
    for override in overrides:
        if not override.strip().startswith(_SECTIONS):
            raise UsageError(f"--set {override}: not of evaluator or reward", "e.g. --set evaluator.timeout_s=20")
    start = {"type": evaluator, **_DEFAULTS.get(evaluator, {})}
    # A config needs a task and a budget; neither is used here.
    config = load_mapping(
        {"task": "softmax", "budget": {"evaluations": 1}, "evaluator": start}, "kernevo serve", overrides
    )
    judge = config.evaluator
    if judge.cache_dir is not None:
        fix = "leave it out: each task's judge keeps its own, where no reference can write into another's"
        raise UsageError("--set evaluator.cache_dir: verdicts of foreign tasks are not kept together", fix)
    if isinstance(judge, GpuEvaluatorConfig) and judge.thorough:
        fix = "take it out; kernevo evaluate --thorough looks into a single kernel"
        raise UsageError("--set evaluator.thorough: takes minutes for each kernel, which no trainer waits for", fix)
    return judge, RewardSettings(**config.reward.model_dump())
