"""From config sections to the objects they describe; each registry is one literal dict."""

from __future__ import annotations

from collections.abc import Callable

from evaluator.protocol import Evaluator
from evaluator.types import Task
from evo.config import CampaignConfig, PolicyConfig, RulePolicyConfig
from evo.monitors import ConsoleMonitor, JsonlMonitor, Monitor
from evo.run_dir import RunDir
from policy.policy import Policy


def make_evaluator(config: CampaignConfig, task: Task) -> Evaluator:
    """The judge the config asks for."""
    from evaluator.backends import create

    return create(config.evaluator.model_dump(), task)


def _rule(config: RulePolicyConfig) -> Policy:
    from policy.rule_policy import RulePolicy

    return RulePolicy(max_steps=config.max_steps, rewrites=config.rewrites)


POLICIES: dict[str, Callable[[PolicyConfig], Policy]] = {"rule": _rule}


def make_policy(config: CampaignConfig) -> Policy:
    """The policy the config asks for."""
    return POLICIES[config.policy.type](config.policy)


def _console(config: CampaignConfig, run_dir: RunDir, done: int) -> Monitor:
    return ConsoleMonitor(config.task, config.budget.evaluations, done)


def _jsonl(config: CampaignConfig, run_dir: RunDir, done: int) -> Monitor:
    return JsonlMonitor(run_dir.path / "metrics.jsonl")


MONITORS: dict[str, Callable[[CampaignConfig, RunDir, int], Monitor]] = {"console": _console, "jsonl": _jsonl}


def make_monitors(config: CampaignConfig, run_dir: RunDir, done: int) -> list[Monitor]:
    """The monitors the config asks for; `done` evaluations were already made by earlier sessions."""
    return [MONITORS[name](config, run_dir, done) for name in config.monitors]
