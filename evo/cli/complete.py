"""What a shell's TAB offers for arguments. Anything unreadable offers nothing: a prompt is no place for errors."""

from __future__ import annotations

from typing import Annotated

import typer

from evo.cli.runs import RUNS, run_folders


def runs(incomplete: str) -> list[str]:
    """Names of the runs under `runs/`."""
    try:
        return [path.name for path in run_folders(RUNS) if path.name.startswith(incomplete)]
    except OSError:
        return []


def tasks(incomplete: str) -> list[str]:
    """Names of the shipped tasks."""
    from evaluator.task import list_tasks

    return [name for name in list_tasks() if name.startswith(incomplete)]


RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Run folder, or its name under runs/.", autocompletion=runs)
]
RunArguments = Annotated[
    list[str], typer.Argument(metavar="RUN...", help="Run folders, or their names under runs/.", autocompletion=runs)
]
