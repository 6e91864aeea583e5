"""From config sections to the objects they describe; each registry is one literal dict."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluator.protocol import Evaluator
from evaluator.types import Task, TimingKind
from evo.bandit import Expectation
from evo.config import (
    CampaignConfig,
    CpuEvaluatorConfig,
    ModelPolicySection,
    OpenAIPolicyConfig,
    ReplayPolicyConfig,
    RulePolicyConfig,
    TransformersPolicyConfig,
    VllmPolicyConfig,
)
from evo.monitors import Behind, ConsoleMonitor, JsonlMonitor, Monitor, TensorBoardMonitor, TrackerMonitor
from evo.playbook import Entry, Playbook, expectations, family_of, notes, priors
from evo.run_dir import RunDir
from policy.policy import Policy

if TYPE_CHECKING:
    from evo.prior import Prior
    from policy.model_children import Workshop
    from policy.model_policy import ModelSettings
    from policy.openai_client import OpenAISettings
    from policy.tokens import TokenCounter
    from policy.tool_desk import ToolDesk


def with_first_kernel(config: CampaignConfig, task: Task) -> Task:
    """The task, with the config's first kernel where it names one. Raises `TaskError`."""
    from evaluator import loaders
    from evaluator.task import read_text

    if config.first_kernel is None:
        return task
    if config.first_kernel == "inductor":
        from evaluator.seeds import inductor

        return task.model_copy(update={"seed_source": inductor.seed(task, config.evaluator.target)})
    text = read_text(Path(config.first_kernel), "first_kernel names a Python file")
    return task.model_copy(update={"seed_source": loaders.as_kernel(config.task, text)})


def make_evaluator(config: CampaignConfig, task: Task) -> Evaluator:
    """The judge the config asks for."""
    from evaluator.backends import create

    return create(config.evaluator.model_dump(), task, config.backend.model_dump())


def _rule(config: RulePolicyConfig, campaign: CampaignConfig) -> Policy:
    from policy.rule_policy import RulePolicy

    learned = priors(learned_before(campaign))
    return RulePolicy(max_steps=config.max_steps, rewrites=config.rewrites, priors=learned)


def learned_before(campaign: CampaignConfig) -> list[Entry]:
    """What the config's playbook says of this campaign's task family, GPU and kind of latency."""
    if campaign.search.playbook is None:
        return []
    from evaluator.task import load_task

    book, judge = Playbook.load(campaign.search.playbook), campaign.evaluator
    kind: TimingKind = "measured" if judge.type == "gpu" else "modelled"
    return book.about(family_of(load_task(campaign.task)), judge.target, kind)


def operators_before(campaign: CampaignConfig) -> dict[str, Expectation]:
    """What the config's playbook has the bandit expect of operators."""
    return expectations(learned_before(campaign))


def _openai(config: OpenAIPolicyConfig, campaign: CampaignConfig) -> Policy:
    from policy.openai_policy import OpenAIPolicy

    tools = _tools(config, campaign)
    return OpenAIPolicy(openai_settings(config), model_settings(config), _workshop(config, campaign), tools=tools)


def _tools(config: ModelPolicySection, campaign: CampaignConfig) -> ToolDesk | None:
    """What the model may call while it analyses a parent; None where the config names no tools."""
    if not config.tools:
        return None
    from evo.drafts import DraftEvaluator
    from policy.tool_desk import ToolDesk

    judge = DraftEvaluator(lambda: draft_evaluator(campaign)) if "evaluate_kernel" in config.tools else None
    documents = None if config.documents is None else Path(config.documents)
    kernels = []
    if campaign.library is not None and "search_kernels" in config.tools:
        from evo.library import for_tools

        kernels = for_tools(Path(campaign.library))
    return ToolDesk(config.tools, config.tool_rounds, documents=documents, kernels=kernels, judge=judge)


def draft_evaluator(campaign: CampaignConfig) -> Evaluator:
    """A CPU evaluator of the campaign's task for one draft at a time: on the GPU a draft would disturb timings."""
    from evaluator.backends import create
    from evaluator.task import load_task

    judge = campaign.evaluator
    settings = judge if isinstance(judge, CpuEvaluatorConfig) else CpuEvaluatorConfig(target=judge.target)
    return create({**settings.model_dump(), "workers": 1}, load_task(campaign.task))


def make_prior(config: CampaignConfig, task: Task) -> Prior | None:
    """What the config has the tuner expect of kernels; None for nothing."""
    if config.search.tuning.prior == "none":
        return None
    from evaluator.backends.forecast import Forecaster
    from evo.prior import ModelPrior

    settings = CpuEvaluatorConfig(target=config.evaluator.target, cache=False).model_dump()
    return ModelPrior(lambda: Forecaster(task, settings))


def _workshop(config: ModelPolicySection, campaign: CampaignConfig) -> Workshop:
    """How prompts are made and answers are read."""
    from policy.attempts import AttemptStore
    from policy.model_children import Workshop
    from policy.reward import RewardSettings

    store = AttemptStore(Path(config.attempts)) if config.attempts is not None else None
    return Workshop(
        config.form,
        rewrites=config.rewrites,
        max_steps=config.max_steps,
        tokens=token_counter(config),
        reward=RewardSettings.model_validate(campaign.reward.model_dump()),
        attempts=store,
        width=config.width,
        notes=notes(learned_before(campaign)),
    )


def token_counter(config: ModelPolicySection) -> TokenCounter:
    """How prompts are counted: with the tokenizer that is given, by a server that can, else estimated."""
    from policy.tokens import ByRatio, FromTokenizer

    if config.tokenizer is not None:
        return FromTokenizer(config.tokenizer)
    if isinstance(config, OpenAIPolicyConfig) and config.server == "vllm":
        from policy.openai_tokens import server_tokens

        return server_tokens(openai_settings(config))
    return ByRatio()


def _vllm(config: VllmPolicyConfig, campaign: CampaignConfig) -> Policy:
    from policy.local_chat import gpu_guard
    from policy.vllm_chat import VllmSettings
    from policy.vllm_policy import VllmPolicy

    shared = [field.name for field in fields(VllmSettings)]
    return VllmPolicy(
        VllmSettings(**{name: getattr(config, name) for name in shared}),
        model_settings(config),
        _workshop(config, campaign),
        alone=gpu_guard if campaign.evaluator.type == "gpu" else nullcontext,
    )


def _transformers(config: TransformersPolicyConfig, campaign: CampaignConfig) -> Policy:
    from policy.local_chat import gpu_guard
    from policy.transformers_engine import TransformersSettings
    from policy.transformers_policy import TransformersPolicy

    shared = [field.name for field in fields(TransformersSettings)]
    timed = campaign.evaluator.type == "gpu" and config.device != "cpu"
    return TransformersPolicy(
        TransformersSettings(**{name: getattr(config, name) for name in shared}),
        model_settings(config),
        _workshop(config, campaign),
        alone=partial(gpu_guard, int(config.device.partition(":")[2] or 0)) if timed else nullcontext,
    )


def _replay(config: ReplayPolicyConfig, campaign: CampaignConfig) -> Policy:
    from evo.run import Run
    from evo.turns import turns_of_run
    from policy.replay_policy import ReplayPolicy

    if Path(config.run).is_file():
        return ReplayPolicy.from_file(config.run)
    return ReplayPolicy(turns_of_run(Run.load(config.run)))


def openai_settings(config: OpenAIPolicyConfig) -> OpenAISettings:
    """Where and how the config's server is asked."""
    from policy.openai_client import OpenAISettings

    shared = set(OpenAISettings.model_fields) & set(OpenAIPolicyConfig.model_fields)
    return OpenAISettings(
        **{name: getattr(config, name) for name in sorted(shared)},
        schema_field=config.json_schema,
        prices=(config.price_prompt, config.price_completion),
    )


def model_settings(config: ModelPolicySection) -> ModelSettings:
    """What is asked, and what happens when asking fails."""
    from policy.model_policy import ModelSettings

    return ModelSettings(**{field.name: getattr(config, field.name) for field in fields(ModelSettings)})


POLICIES: dict[str, Callable[[Any, CampaignConfig], Policy]] = {
    "rule": _rule,
    "openai": _openai,
    "vllm": _vllm,
    "transformers": _transformers,
    "replay": _replay,
}


def make_policy(config: CampaignConfig) -> Policy:
    """The policy the config asks for; several are one ensemble."""
    made = [(POLICIES[one.type](one, config), one.weight) for one in config.policies]
    if len(made) == 1:
        return made[0][0]
    from policy.ensemble import EnsemblePolicy

    return EnsemblePolicy(made)


def _console(config: CampaignConfig, run_dir: RunDir, done: int) -> Monitor:
    return ConsoleMonitor(config.task, config.budget.evaluations, done)


def _jsonl(config: CampaignConfig, run_dir: RunDir, done: int) -> Monitor:
    return JsonlMonitor(run_dir.path / "metrics.jsonl")


def _tensorboard(config: CampaignConfig, run_dir: RunDir, done: int) -> Monitor:
    return Behind("tensorboard", lambda: TensorBoardMonitor(run_dir.path / "tensorboard"))


def _tracker(package: str) -> Callable[[CampaignConfig, RunDir, int], Monitor]:
    def make(config: CampaignConfig, run_dir: RunDir, done: int) -> Monitor:
        facts = config.model_dump(mode="json")
        task = re.sub(r"[^\w.-]+", "-", config.task).strip("-")
        return Behind(package, lambda: TrackerMonitor(package, task, run_dir.path.resolve(), facts))

    return make


MONITORS: dict[str, Callable[[CampaignConfig, RunDir, int], Monitor]] = {
    "console": _console,
    "jsonl": _jsonl,
    "tensorboard": _tensorboard,
    "trackio": _tracker("trackio"),
    "wandb": _tracker("wandb"),
}


def make_monitors(config: CampaignConfig, run_dir: RunDir, done: int) -> list[Monitor]:
    """The monitors the config asks for; `done` evaluations were already made by earlier sessions."""
    return [MONITORS[name](config, run_dir, done) for name in config.monitors]
