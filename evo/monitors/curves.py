"""Sinks that draw curves: TensorBoard, trackio, Weights & Biases. Each needs its package, an extra of Kernevo."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evaluator.errors import EnvironmentUnusableError
from evo.candidate import Record
from evo.events import Finalists
from evo.monitors.base import Step
from evo.monitors.scalars import finite, scalars_of, scalars_of_finalists


class CurvesMonitor:
    """Draws every generation over the evaluations; a subclass says where."""

    def __init__(self) -> None:
        self._evaluations = 0

    def write(self, numbers: Mapping[str, float], evaluations: int) -> None:
        """Put numbers down at a place of the x axis."""
        raise NotImplementedError

    def candidate(self, record: Record) -> None:
        """Candidates are in the journal already."""

    def step(self, step: Step) -> None:
        """One point of every curve."""
        self._evaluations = step.evaluations
        self.write(scalars_of(step), step.evaluations)

    def policy(self, summary: Mapping[str, Any]) -> None:
        """The numbers of a policy that keeps count."""
        plain = {f"policy/{name}": value for name, value in summary.items() if isinstance(value, int | float)}
        self.write(finite(plain), self._evaluations)

    def finalists(self, finalists: Finalists) -> None:
        """One point."""
        self.write(scalars_of_finalists(finalists), self._evaluations)

    def close(self) -> None:
        """Nothing to give back."""


class TensorBoardMonitor(CurvesMonitor):
    """Event files for `tensorboard --logdir RUN/tensorboard`."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._writer = needed("tensorboard.summary", "tensorboard").Writer(str(folder))

    def write(self, numbers: Mapping[str, float], evaluations: int) -> None:
        """One scalar for each number."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, evaluations)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


class TrackerMonitor(CurvesMonitor):
    """A run of trackio or Weights & Biases, which share their calls. A resumed campaign continues its run."""

    def __init__(self, package: str, task: str, run: Path, config: Mapping[str, Any]) -> None:
        super().__init__()
        library = needed(package, package)
        given = {"project": f"kernevo-{task}", "name": run.name, "config": dict(config), "resume": "allow"}
        if package == "wandb":
            given |= {"id": run.name, "dir": str(run)}
        self._run = library.init(**given)

    def write(self, numbers: Mapping[str, float], evaluations: int) -> None:
        """One record."""
        if numbers:
            self._run.log(dict(numbers), step=evaluations)

    def close(self) -> None:
        """Send what is left."""
        self._run.finish()


def needed(module: str, extra: str) -> Any:
    """An optional module. Raises EnvironmentUnusableError naming the extra that brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise EnvironmentUnusableError(
            f"{extra} is not installed ({error})", f"pip install 'kernevo[{extra}]'"
        ) from None
