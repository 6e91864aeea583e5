"""What `kernevo run --dry-run` checks and prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evaluator.errors import EnvironmentUnusableError, UsageError
from evaluator.types import Workload

if TYPE_CHECKING:
    from evo.campaign import Campaign
    from evo.config import AnyPolicyConfig, CpuEvaluatorConfig, GpuEvaluatorConfig
    from evo.config_library import SeedsConfig
    from evo.config_search import IslandsConfig


def check_plan(campaign: Campaign) -> None:
    """Everything that would stop the run before its first candidate. Raises the error that it would."""
    from evo.cli import doctor

    path = campaign.dir.path
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path}: already used", f"kernevo resume {path} continues it; --name NEW starts another")
    if (reason := doctor.unwritable(path)) is not None:
        raise EnvironmentUnusableError(f"{path}: cannot be written: {reason}", "choose another folder with runs_dir")
    failed = [check for check in doctor.machine_checks() if check.state == "fail"]
    if failed:
        raise EnvironmentUnusableError(f"{failed[0].name}: {failed[0].detail}", failed[0].fix)


def plan_of(campaign: Campaign) -> dict[str, object]:
    """Name -> what the campaign would do, in the words of the config."""
    config, task = campaign.config, campaign.task
    limits = {key: value for key, value in config.budget.model_dump().items() if value is not None}
    search = config.search
    return {
        "run": f"{campaign.dir.path} (not created)",
        "task": f"{task.name} ({task.dtype}), from {task.origin}",
        "workloads": "\n".join(_shape(workload) for workload in task.workloads),
        "check shapes": "\n".join(_shape(shape) for shape in task.check_shapes),
        "evaluator": _evaluator(config.evaluator),
        "policy": "\n".join(_policy(policy) for policy in config.policies),
        "search": f"population {search.population}, {search.offspring} candidates a generation, {search.selection}"
        f" on {', '.join(search.objectives)}",
        "islands": f"{search.islands.count}, {', '.join(_directions(search.islands))}",
        "tuning": f"{search.tuning.sampler}, {search.tuning.share:.0%} of each generation",
        "budget": ", ".join(f"{key} {value:g}" for key, value in limits.items()),
        "starts from": _seeds(config.seeds),
        "seed": config.seed,
    }


def _seeds(config: SeedsConfig | None) -> str:
    own = "the task's seed kernel"
    return own if config is None else f"{own}, at most {config.top} kernels of {config.library}"


def _directions(islands: IslandsConfig) -> list[str]:
    return [islands.strategies[number % len(islands.strategies)] for number in range(islands.count)]


def _policy(config: AnyPolicyConfig) -> str:
    if config.type == "replay":
        return f"replay, what {config.run} recorded"
    rewrites = "the whole catalogue" if config.rewrites is None else ", ".join(config.rewrites)
    if config.type == "rule":
        return f"rule, {rewrites}"
    shown = f", {rewrites}" if config.form == "structured" else ""
    failing = "rules answer" if config.on_failure == "fallback" else "the campaign stops"
    place = f" at {config.base_url}" if config.type == "openai" else " in this process"
    return f"{config.type}, {config.adapter or config.model}{place}, {config.form}{shown}; if it fails, {failing}"


def _evaluator(config: CpuEvaluatorConfig | GpuEvaluatorConfig) -> str:
    if config.type == "gpu":
        device = config.device
        if device == "all":
            which = "on all GPUs"
        else:
            which = f"on GPU {', '.join(map(str, device))}" if isinstance(device, tuple) else f"on GPU {device}"
        return f"gpu, latency measured {which}, baseline {config.baseline}"
    return f"cpu, latency modelled for {config.target}"


def _shape(workload: Workload) -> str:
    return f"{workload.name}: {', '.join(f'{key}={value}' for key, value in workload.params.items())}"
