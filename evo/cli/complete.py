"""What a shell's TAB offers for arguments. Anything unreadable offers nothing: a prompt is no place for errors."""

from __future__ import annotations

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
