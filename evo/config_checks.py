"""What field types cannot say: settings that only make sense together, and names that must exist."""

from __future__ import annotations

import importlib.util
import os.path
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from evaluator.errors import UsageError
from evaluator.yaml_reader import Document, Loc
from evo.config import (
    AnyPolicyConfig,
    CampaignConfig,
    ModelPolicySection,
    OpenAIPolicyConfig,
    TransformersPolicyConfig,
)
from evo.config_keys import dotted, nearest
from evo.config_problems import Problem

_LONGEST_NAME = 100


def check(config: CampaignConfig, document: Document) -> list[Problem]:
    """Every problem of a config whose field types are right."""
    return [problem for rule in _RULES for problem in rule(config, document)]


def _name(config: CampaignConfig, document: Document) -> Iterator[Problem]:
    name = config.name
    if name is None:
        return
    forbidden = set(name) & set("/\\\0\n") or name in (".", "..") or name.startswith("-")
    if forbidden or not name.strip() or len(name.encode()) > _LONGEST_NAME:
        where = document.value_position(("name",))
        shown = name if len(name) <= 40 else f"{name[:39]}…"
        fix = f"use letters, digits, `_` and `-`, at most {_LONGEST_NAME} of them"
        yield Problem(where, "name", f"{shown!r} cannot name a folder", fix)


def _task(config: CampaignConfig, document: Document) -> Iterator[Problem]:
    from evaluator import loaders
    from evaluator.task import list_tasks

    if bool(config.task) == (config.suite is not None):
        what = (
            "the config names both a task and a suite" if config.task else "the config names neither a task nor a suite"
        )
        yield Problem(
            document.value_position(("task",)), "task", what, "write either `task: NAME` or `suite: {tasks: [...]}`"
        )
        return
    shipped = list_tasks()
    if not config.task or config.task in shipped or os.path.exists(config.task) or loaders.is_foreign(config.task):
        return
    near = nearest(Path(config.task).name, shipped)
    fix = f"the nearest task is `{near}`" if near else f"shipped tasks: {', '.join(shipped)}"
    shown = config.task if len(config.task) <= 80 else f"{config.task[:79]}…"
    what = f"no shipped task and no folder is named {shown!r}"
    yield Problem(document.value_position(("task",)), "task", what, f"{fix}; `kernevo tasks list` shows all")


def _target(config: CampaignConfig, document: Document) -> Iterator[Problem]:
    from evaluator import hardware

    target = config.evaluator.target
    if target in hardware.names():
        return
    near = nearest(target, hardware.names())
    fix = f"the nearest is `{near}`; known: {', '.join(hardware.names())}"
    where = document.value_position(("evaluator", "target"))
    yield Problem(where, "evaluator.target", f"unknown GPU {target!r}", fix)


def _devices(config: CampaignConfig, document: Document) -> Iterator[Problem]:
    if config.evaluator.type != "gpu" or not isinstance(config.evaluator.device, tuple):
        return
    device = config.evaluator.device
    for place, index in enumerate(device):
        if index in device[:place]:
            where = document.value_position(("evaluator", "device", place))
            yield Problem(where, f"evaluator.device[{place}]", f"GPU {index} is named twice", "name each GPU once")


def _backend(config: CampaignConfig, document: Document) -> Iterator[Problem]:
    backend, judge = config.backend, config.evaluator
    if backend.type != "ray":
        return
    found: list[tuple[Loc, str, str]] = []
    if importlib.util.find_spec("ray") is None:
        what = "ray needs the package ray, which is not installed"
        found.append((("backend", "type"), what, "pip install 'kernevo[ray]'"))
    if judge.type == "cpu" and backend.gpu is not None:
        found.append((("backend", "gpu"), "the cpu evaluator uses no GPU", "remove the key"))
    if judge.type == "gpu" and judge.device != "all":
        fix = "remove the key; CUDA_VISIBLE_DEVICES of `ray start` says which GPUs a node gives"
        found.append((("evaluator", "device"), "Ray chooses the GPUs", fix))
    shared = [one.type for one in config.policies if one.type in ("vllm", "transformers")]
    if judge.type == "gpu" and shared:
        what = f"{shared[0]} in this process would use a GPU while Ray's actors time kernels on it"
        found.append((("policy",), what, "serve the model on GPUs that Ray does not have, and use type: openai"))
    for loc, what, fix in found:
        yield Problem(document.value_position(loc), dotted(loc), what, fix)


def _policies(config: CampaignConfig, document: Document) -> Iterator[Problem]:
    if not config.policies:
        fix = "list at least one policy, or remove the key to use the rule policy"
        yield Problem(document.value_position(("policy",)), "policy", "the list is empty", fix)
    for index, policy in enumerate(config.policies):
        loc: Loc = ("policy", index) if isinstance(config.policy, tuple) else ("policy",)
        if policy.type == "replay":
            yield from _recorded(policy.run, (*loc, "run"), document)
            continue
        yield from _rewrites(policy.rewrites, loc, document)
        found = list(_server_problems(policy)) if policy.type == "openai" else []
        found += _local_problems(policy) if policy.type == "transformers" else []
        if isinstance(policy, ModelPolicySection):
            found += _tool_problems(policy)
            found += _attempt_problems(policy, config.policies[:index])
        for name, what, fix in found:
            where = (*loc, name)
            yield Problem(document.value_position(where), dotted(where), what, fix)


def _recorded(run: str, loc: Loc, document: Document) -> Iterator[Problem]:
    if not (Path(run) / "journal.jsonl").is_file() and not Path(run).is_file():
        fix = "give the folder of a run (`kernevo status` lists those under runs/) or its trajectories.jsonl"
        yield Problem(document.value_position(loc), dotted(loc), f"{run!r} holds no run", fix)


def _rewrites(rewrites: tuple[str, ...] | None, policy: Loc, document: Document) -> Iterator[Problem]:
    if rewrites is None:
        return
    loc = (*policy, "rewrites")
    if not rewrites:
        fix = "remove the key to use the whole catalogue"
        yield Problem(document.value_position(loc), dotted(loc), "the list is empty", fix)
        return
    from policy.rewrites import catalogue

    known = sorted(catalogue())
    for index, name in enumerate(rewrites):
        if name not in known:
            near = nearest(name, known)
            fix = f"the nearest is `{near}`" if near else f"known: {', '.join(known)}"
            where = (*loc, index)
            yield Problem(document.value_position(where), dotted(where), f"unknown rewrite {name!r}", fix)


def _server_problems(policy: OpenAIPolicyConfig) -> Iterator[tuple[str, str, str]]:
    """Key, what is wrong and the fix. What may be a secret is not repeated."""
    if importlib.util.find_spec("openai") is None:
        yield "type", "openai needs the package openai, which is not installed", "pip install 'kernevo[llm]'"
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", policy.api_key_env):
        fix = "write the variable's name, e.g. OPENAI_API_KEY, and put the key into the variable"
        yield "api_key_env", "no name of an environment variable", fix
    try:
        url = urlsplit(policy.base_url)
        host = url.hostname if url.scheme in ("http", "https") and url.port != 0 else None
    except ValueError:
        host = None
    if host is None:
        yield "base_url", "no address of a server", "write e.g. http://localhost:8000/v1"
    elif url.username is not None or url.password is not None or url.query:
        fix = "put the key into the environment variable that api_key_env names"
        yield "base_url", "holds more than an address, and configs are stored", fix
    if policy.adapter_path is not None and policy.adapter is None:
        yield "adapter_path", "an adapter is loaded under a name, and there is none", "set `adapter`"
    if "generate" not in policy.phases:
        yield "phases", "no kernel is asked for", "add `generate`"


def _local_problems(policy: TransformersPolicyConfig) -> Iterator[tuple[str, str, str]]:
    """Key, what is wrong and the fix."""
    needed = ["transformers"] if policy.adapter is None else ["transformers", "peft"]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        what = f"transformers needs packages that are not installed: {', '.join(missing)}"
        yield "type", what, "pip install 'kernevo[transformers]'"
    if policy.form == "structured" and policy.max_steps > 1:
        fix = "set `max_steps: 1`, or use type: vllm, which holds answers to any schema"
        yield "max_steps", "transformers holds answers of one step to their schema, not of several", fix


def _tool_problems(policy: ModelPolicySection) -> Iterator[tuple[str, str, str]]:
    """Key, what is wrong and the fix."""
    if policy.tools and not isinstance(policy, OpenAIPolicyConfig):
        kind = str(getattr(policy, "type", ""))
        yield (
            "tools",
            f"{kind} in this process calls no tools",
            "remove `tools`, or serve the model and use type: openai",
        )
    elif policy.tools and "analyse" not in policy.phases:
        yield "tools", "tools are used in the analysis, and none is asked for", "set `phases: [analyse, generate]`"
    for name in policy.tools:
        if policy.tools.count(name) > 1:
            yield "tools", f"{name} is named twice", "name each tool once"
            break
    if policy.documents is None:
        return
    if not {"search_documents", "search_kernels"} & set(policy.tools):
        yield "documents", "no tool reads them", "add `search_documents` to `tools`, or remove `documents`"
    elif not os.path.isdir(policy.documents):
        yield "documents", f"no folder is named {policy.documents!r}", "give a folder that exists, or remove the key"


def _attempt_problems(policy: ModelPolicySection, before: Sequence[AnyPolicyConfig]) -> Iterator[tuple[str, str, str]]:
    """Key, what is wrong and the fix."""
    if policy.attempts is None:
        return
    if os.path.isdir(policy.attempts):
        yield "attempts", f"{policy.attempts!r} is a folder", "give the path of a file, e.g. runs/attempts.jsonl"
    used = [os.path.abspath(one.attempts) for one in before if isinstance(one, ModelPolicySection) and one.attempts]
    if os.path.abspath(policy.attempts) in used:
        yield "attempts", "an earlier policy of the list keeps this file", "give each policy a file of its own"


def _objectives(config: CampaignConfig, document: Document) -> Iterator[Problem]:
    objectives = config.search.objectives
    where = document.value_position(("search", "objectives"))
    if not objectives:
        yield Problem(where, "search.objectives", "the list is empty", "write `[speedup]`")
    if len(set(objectives)) < len(objectives):
        yield Problem(where, "search.objectives", "an objective is given twice", "name each once")
    if len(objectives) > 1 and config.search.selection == "tournament":
        explicit = ("search", "selection") in document.values
        loc = ("search", "selection" if explicit else "objectives")
        what = f"tournament selection compares one objective, not {len(objectives)}"
        yield Problem(document.value_position(loc), ".".join(loc), what, "set `search.selection: nsga2`")


def _islands(config: CampaignConfig, document: Document) -> Iterator[Problem]:
    count, population = config.search.islands.count, config.search.population
    if count > population:
        where = document.value_position(("search", "islands", "count"))
        what = f"{count} islands cannot share {population} survivors"
        yield Problem(where, "search.islands.count", what, "raise `search.population`, four for each island or more")


def _shares(config: CampaignConfig, document: Document) -> Iterator[Problem]:
    operators, tuned = config.search.operators, config.search.tuning.share
    if operators.kind == "fixed" and tuned + operators.crossover + operators.repair > 1:
        key = "crossover" if operators.crossover > 0 else "repair"
        where = document.value_position(("search", "operators", key))
        what = f"{operators.crossover + operators.repair:g} of a batch and {tuned:g} for tuning are more than all of it"
        yield Problem(where, f"search.operators.{key}", what, "lower it or `search.tuning.share`")


_SAMPLER_PACKAGES = {"cmaes": ("cmaes",), "gp": ("scipy", "torch")}
"""What Optuna's samplers import beside Optuna itself."""


def _sampler(config: CampaignConfig, document: Document) -> Iterator[Problem]:
    sampler = config.search.tuning.sampler
    missing = [name for name in _SAMPLER_PACKAGES.get(sampler, ()) if importlib.util.find_spec(name) is None]
    if missing:
        where = document.value_position(("search", "tuning", "sampler"))
        what = f"{sampler} needs packages that are not installed: {', '.join(missing)}"
        yield Problem(where, "search.tuning.sampler", what, f"pip install {' '.join(missing)}, or use tpe")


def _prior(config: CampaignConfig, document: Document) -> Iterator[Problem]:
    if config.search.tuning.prior == "cost_model" and config.evaluator.type == "cpu":
        where = document.value_position(("search", "tuning", "prior"))
        what = "the cpu evaluator's latencies are the cost model's own"
        yield Problem(where, "search.tuning.prior", what, "use `evaluator: {type: gpu}`, or remove the key")


def _playbook(config: CampaignConfig, document: Document) -> Iterator[Problem]:
    if config.search.playbook is None:
        return
    from evo.playbook import Playbook

    try:
        Playbook.load(config.search.playbook)
    except UsageError as error:
        where = document.value_position(("search", "playbook"))
        yield Problem(where, "search.playbook", error.message, error.hint or "")


def _budget(config: CampaignConfig, document: Document) -> Iterator[Problem]:
    budget = config.budget
    if all(limit is None for limit in (budget.evaluations, budget.seconds, budget.generations, budget.gpu_seconds)):
        where = document.value_position(("budget",))
        fix = "give at least one of evaluations, seconds, generations"
        yield Problem(where, "budget", "nothing here ends the campaign for certain", fix)
    for name, what, fix in _never_reached(config):
        yield Problem(document.value_position(("budget", name)), f"budget.{name}", what, fix)


def _never_reached(config: CampaignConfig) -> Iterator[tuple[str, str, str]]:
    """Key, what is wrong and the fix."""
    budget, models = config.budget, [one for one in config.policies if isinstance(one, ModelPolicySection)]
    if budget.gpu_seconds is not None and config.evaluator.type == "cpu":
        yield "gpu_seconds", "the cpu evaluator uses no GPU", "use `evaluator: {type: gpu}`, or limit `seconds`"
    if budget.tokens is not None and not models:
        yield "tokens", "no policy asks a language model", "remove the key, or use one"
    priced = [one for one in models if isinstance(one, OpenAIPolicyConfig) and one.price_prompt + one.price_completion]
    if budget.dollars is not None and not priced:
        fix = "set `price_prompt` and `price_completion` of the policy, or limit `tokens`"
        yield "dollars", "no policy has a price", fix


def _learning(config: CampaignConfig, document: Document) -> Iterator[Problem]:
    learning = config.learning
    if learning is None:
        return
    able = [policy for policy in config.policies if policy.type in _ADAPTABLE]
    found: list[tuple[str, str, str]] = []
    if len(able) != 1:
        found.append(("every", f"{len(able)} policies can change their adapter, not one", _ADAPTABLE_FIX))
    if not (Path(learning.base) / "config.json").is_file():
        found.append(("base", f"{learning.base!r} holds no model (no config.json)", "give the model's folder"))
    missing = [name for name in ("trl", "peft") if importlib.util.find_spec(name) is None]
    if missing:
        what = f"{learning.method} needs packages that are not installed: {', '.join(missing)}"
        found.append(("method", what, "pip install 'kernevo[train]'"))
    if config.evaluator.type == "cpu" and not learning.allow_modelled:
        fix = "set `learning.allow_modelled: true`, or use `evaluator: {type: gpu}`"
        found.append(("allow_modelled", "the cpu evaluator's latencies are modelled", fix))
    for name, what, fix in found:
        where = ("learning", name)
        yield Problem(document.value_position(where), dotted(where), what, fix)


def _library(config: CampaignConfig, document: Document) -> Iterator[Problem]:
    if config.library is not None and os.path.isdir(config.library):
        fix = "give the path of a file, e.g. runs/library.sqlite"
        yield Problem(document.value_position(("library",)), "library", f"{config.library!r} is a folder", fix)
    seeds = config.seeds
    if seeds is None:
        return
    if not os.path.isfile(seeds.library):
        loc: Loc = ("seeds", "library")
        fix = f"`kernevo library add RUN… --library {seeds.library}` makes one"
        yield Problem(document.value_position(loc), dotted(loc), f"no library is at {seeds.library!r}", fix)
    allowed = config.budget.evaluations
    if allowed is not None and seeds.top >= allowed:
        loc = ("seeds", "top") if ("seeds", "top") in document.values else ("seeds",)
        what = f"{seeds.top} kernels and the task's seed are more than the budget of {allowed} evaluations"
        yield Problem(document.value_position(loc), "seeds.top", what, "take fewer, or raise `budget.evaluations`")


_ADAPTABLE = ("openai", "transformers")
"""Types of policy that can change their adapter while they run."""
_ADAPTABLE_FIX = "use one policy of `type: openai` with vLLM's server"

_RULES: tuple[Callable[[CampaignConfig, Document], Iterator[Problem]], ...] = (
    _name,
    _task,
    _target,
    _devices,
    _backend,
    _policies,
    _learning,
    _library,
    _objectives,
    _islands,
    _shares,
    _sampler,
    _prior,
    _playbook,
    _budget,
)
