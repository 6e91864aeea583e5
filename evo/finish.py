"""What a session leaves beside the journal: elites, trajectories, studies, playbook, report. All derived."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from evo.run import Run
from evo.tuning import Tuner


def write_derived(run: Run, tuner: Tuner) -> None:
    """Write every derived file. One that fails is named on stderr; the journal already holds everything."""
    products: dict[str, Callable[[], object]] = {
        "trajectories.jsonl": lambda: _trajectories(run),
        "optuna.journal": lambda: run.dir.write_parts_atomically(run.path / "optuna.journal", tuner.export()),
        "elites": lambda: _elites(run),
        "playbook.json": lambda: _playbook(run),
        "report.html": lambda: _report(run),
    }
    if (library := run.config.library) is not None:
        path = Path(library).absolute()
        products[str(path)] = lambda: _library(path, run)
    for name, make in products.items():
        try:
            make()
        except Exception as error:  # a broken report must not fail a campaign that is safely recorded
            print(f"warning: {run.path / name} was not written: {error}", file=sys.stderr)


def _trajectories(run: Run) -> None:
    from evo.turns import write_trajectories

    write_trajectories(run)


def _elites(run: Run) -> None:
    from evo.harvest import harvest

    if run.elites(1):
        harvest(run, run.config.elites, run.dir.elites, force=True)


def _library(path: Path, run: Run) -> None:
    from evo.library import add

    add(path, [run])


def _playbook(run: Run) -> None:
    from evo.playbook import write

    write(run)


def _report(run: Run) -> None:
    from evo.report import render

    render(run)
