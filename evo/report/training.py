"""What trainings of the policy logged: each adapter's `metrics.jsonl`, and what the journal says came of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evo.events import Learned
from evo.learning import ADAPTERS
from evo.run import Run
from policy.training.metrics_log import read

MAX_STEPS = 2000
"""Steps of one training that are drawn; every n-th beyond."""


@dataclass(frozen=True)
class Training:
    """One adapter of the run."""

    name: str
    rows: list[Mapping[str, Any]]
    """Logged steps, thinned to `MAX_STEPS`."""
    learned: Learned | None
    """None where the training was interrupted, is still going, or was started by hand."""
    problem: str = ""
    """Why its steps cannot be read."""

    @property
    def outcome(self) -> str:
        """What came of it, for people."""
        if self.learned is None:
            return "not finished"
        if self.learned.exit_code:
            return f"failed (exit code {self.learned.exit_code})"
        return "in use from here on" if self.learned.kept else "dropped: its probe was worse"


def trainings(run: Run) -> list[Training]:
    """The run's trainings by name: folders with metrics, and those that the journal alone knows."""
    learned = {one.adapter: one for one in run.learned()}
    folder = run.path / ADAPTERS
    found = {path.parent.name for path in folder.glob("*/metrics.jsonl")} if folder.is_dir() else set()
    return [_training(run, name, learned.get(name)) for name in sorted(found | set(learned))]


def _training(run: Run, name: str, learned: Learned | None) -> Training:
    try:
        rows = [row for row in read(run.path / ADAPTERS / name / "metrics.jsonl") if isinstance(row, dict)]
    except (OSError, ValueError) as error:
        return Training(name, [], learned, f"its metrics.jsonl cannot be read: {error}")
    stride = math.ceil(len(rows) / MAX_STEPS) or 1
    return Training(name, [*rows[:-1:stride], *rows[-1:]], learned)


def metric(row: Mapping[str, Any], name: str) -> float | None:
    """A logged number; None where it is missing or is none."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
