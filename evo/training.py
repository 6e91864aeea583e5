"""From runs to a training: their turns, their rewards, and evaluators that judge as the runs did."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from evaluator.errors import UsageError
from evaluator.protocol import Evaluator
from evo.config import EvaluatorConfig, GpuEvaluatorConfig
from evo.run import Run
from evo.turns import turns_of_run
from policy.reward import RewardSettings

if TYPE_CHECKING:
    from policy.training.manifest import Manifest
    from policy.training.settings import TrainingSettings


def settings_of(given: Mapping[str, Any]) -> TrainingSettings:
    """Settings from command-line values. Raises UsageError naming the first wrong one."""
    from policy.training.settings import TrainingSettings

    try:
        return TrainingSettings.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        name = "--" + "-".join(str(part) for part in first["loc"]).replace("_", "-")
        raise UsageError(f"{name}: {first['msg']}", "`kernevo finetune --help` lists the options") from None


def show_steps() -> None:
    """Steps and alarms of a training as lines on stderr; progress bars of the libraries are left out."""
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    log = logging.getLogger("kernevo.training")
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.INFO)


def train_on(folders: Sequence[Path], settings: TrainingSettings, out: Path, *, resume: bool = False) -> Manifest:
    """Train an adapter on runs. Raises UsageError for runs that do not fit together."""
    from policy.training.data import Source
    from policy.training.session import finetune

    runs = [Run.load(folder) for folder in folders]
    sources = [Source(run.name, tuple(turns_of_run(run)), run.config.reward.model_dump_json()) for run in runs]
    reward = RewardSettings.model_validate(runs[0].config.reward.model_dump())
    with _evaluators(runs if settings.samples else []) as evaluators:
        return finetune(settings, sources, evaluators, out, reward=reward, resume=resume)


@contextmanager
def _evaluators(runs: Sequence[Run]) -> Iterator[dict[str, Evaluator]]:
    """One for each task."""
    from evaluator.backends import create

    judges: dict[str, tuple[Run, EvaluatorConfig]] = {}
    for run in runs:
        name, config = run.started.task, training_judge(run.config.evaluator)
        known = judges.setdefault(name, (run, config))
        if known[1] != config or known[0].started.task_fingerprint != run.started.task_fingerprint:
            raise UsageError(
                f"runs {known[0].name} and {run.name} judge task {name} differently", "train on one of them at a time"
            )
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(create(config.model_dump(), run.task)) for name, (run, config) in judges.items()
        }


def training_judge(config: EvaluatorConfig) -> EvaluatorConfig:
    """The run's evaluator, but the same answer is worth the same every time it is given."""
    if isinstance(config, GpuEvaluatorConfig):
        return config.model_copy(update={"duplicates": "judge"})
    return config
