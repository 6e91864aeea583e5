"""What every training does beside TRL's own work: metrics, alarms, time, and an end at numbers that are none.

Imports torch and transformers.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from evaluator.errors import KernevoError
from policy.training.alarms import Alarms
from policy.training.checkpoints import last_checkpoint
from policy.training.metrics_log import MetricsLog
from policy.training.stopwatch import Stopwatch

LOG = logging.getLogger("kernevo.training")


class NotFiniteError(KernevoError):
    """A loss or a gradient is NaN or infinite; the weights were not touched by it."""


class Watch:
    """One training's clock, metrics and alarms; it outlives a trainer that ran out of memory."""

    def __init__(self, folder: Path, log: MetricsLog) -> None:
        self.clock = Stopwatch()
        self.log = log
        self.rung: list[str] = []
        """Every alarm so far, `step N: words`."""
        self.extras: dict[str, float] = {}
        """Metrics of the step that is under way."""
        self._alarms = Alarms()
        self._checkpoints = folder

    def step_ends(self) -> None:
        """Note where the step's time went."""
        self.extras |= {f"seconds/{name}": seconds for name, seconds in self.clock.lap().items()}

    def logged(self, step: int, metrics: dict[str, Any]) -> None:
        """Keep a step's metrics and ring its alarms."""
        numbers = {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}
        new = self._alarms.hear(numbers)
        LOG.info("step %d: %s", step, told(numbers))
        for words in new.values():
            LOG.warning("step %d: %s", step, words)
            self.rung.append(f"step {step}: {words}")
        self.log.append(step, {**metrics, "alarms": self._alarms.ringing})
        self.extras = {}

    def not_finite(self, what: str, step: int) -> NotFiniteError:
        """The error for a `what` that is no number."""
        kept = last_checkpoint(self._checkpoints)
        state = "no checkpoint was written yet" if kept is None else f"{kept} is the last good checkpoint"
        return NotFiniteError(f"{what} of step {step} is no finite number; {state}", "train with a lower learning rate")


def told(metrics: Mapping[str, float]) -> str:
    """One line for people."""
    shown = ("loss", "mean_reward", "valid", "correct", "fast@1", "entropy", "seconds/step")
    return "  ".join(f"{name} {metrics[name]:.4g}" for name in shown if name in metrics)


def quiet(trainer: Any) -> None:
    """Keep stdout for results: transformers prints every step there."""
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)


class Watched:
    """Mixin in front of one of TRL's trainers; `watch` must be set before training."""

    watch: Watch

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """One micro-batch, timed. Raises NotFiniteError before an optimizer sees what it made."""
        with self.watch.clock.part("training"):
            loss: torch.Tensor = super().training_step(*args, **kwargs)  # type: ignore[misc]
        if not torch.isfinite(loss).all():
            raise self.watch.not_finite("the loss", self.state.global_step + 1)  # type: ignore[attr-defined]
        return loss

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """TRL's metrics and ours go to TensorBoard and to metrics.jsonl alike."""
        trains = "loss" in logs
        if trains:
            logs.update(self.watch.extras)
        super().log(logs, *args, **kwargs)  # type: ignore[misc]
        if trains:
            self.watch.logged(self.state.global_step, logs)  # type: ignore[attr-defined]


class Steps(TrainerCallback):  # type: ignore[misc]  # transformers is not typed for us
    """Times the optimizer, ends the stopwatch's laps, and keeps gradients that are no numbers from the weights."""

    def __init__(self, watch: Watch, model: Any) -> None:
        self._watch, self._model = watch, model
        self._timed: AbstractContextManager[None] | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """What was loaded before is no part of the first step."""
        self._watch.clock.lap()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Between the gradient and the weights."""
        gradients = [one.grad for one in self._model.parameters() if one.grad is not None]
        if gradients and not torch.isfinite(torch.stack([one.float().norm() for one in gradients])).all():
            raise self._watch.not_finite("a gradient", state.global_step + 1)
        self._timed = self._watch.clock.part("training")
        self._timed.__enter__()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The weights have moved."""
        assert self._timed is not None
        self._timed.__exit__(None, None, None)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Logging and saving of this step count as overhead of the next."""
        self._watch.step_ends()
