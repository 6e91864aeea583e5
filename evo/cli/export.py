"""`kernevo export`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evaluator.errors import UsageError
from evo.cli import complete, output
from evo.cli.apps import new_app
from evo.cli.runs import find_run

if TYPE_CHECKING:
    from evaluator.types import Task
    from policy.export import Exported

app = new_app()


class SplitBy(StrEnum):
    """What must not be on both sides of a split."""

    TASK = "task"


@app.command()
def export(
    runs: complete.RunArguments,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            help="trl-sft|grpo|dpo|kto, verl, verl-sft, openrlhf, skyrl, prime-rl, prime-sft, openevolve",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write the dataset to; exports/FORMAT in the first run when left out.")
    ] = None,
    split_by: Annotated[
        SplitBy | None,
        typer.Option(help="`task`: a fifth of the tasks in a split `test`; held-out ones, where allowed."),
    ] = None,
    allow_modelled: Annotated[
        bool, typer.Option("--allow-modelled", help="Export modelled timings too, marked as such in every row.")
    ] = False,
    allow_held_out: Annotated[
        bool, typer.Option("--allow-held-out", help="Export held-out tasks too, as a split `test`.")
    ] = False,
    min_gain: Annotated[
        float, typer.Option(min=0, help="SFT keeps, and KTO likes, steps that gain at least this share.")
    ] = 0.05,
    per_lineage: Annotated[int, typer.Option(min=1, help="SFT keeps at most so many steps of one lineage.")] = 8,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the dataset in the folder.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write a run's trajectories for a training library.

    The folder is read by `datasets.load_dataset(FOLDER)`. Modelled timings are no measured reward: they are refused
    unless --allow-modelled is given.
    """
    folders = _distinct([find_run(run) for run in runs])
    from evo.turns import stream_turns
    from policy.export import export as write_dataset
    from policy.export import format_named
    from policy.exports.base import Options

    tasks = _tasks(folders) if format_named(format_).needs_task else {}
    written = write_dataset(
        chain.from_iterable(stream_turns(folder) for folder in folders),
        format_,
        out if out is not None else folders[0] / "exports" / format_,
        allow_modelled=allow_modelled,
        allow_held_out=allow_held_out,
        split_by="task" if split_by else None,
        force=force,
        options=Options(min_gain=min_gain, per_lineage=per_lineage, tasks=tasks),
    )
    for note in written.notes:
        output.note(f"note: {note}")
    if as_json:
        output.print_json(_document(written))
    else:
        output.print_facts(_facts(written))


def _distinct(folders: Sequence[Path]) -> Sequence[Path]:
    """The folders, which rows tell apart by name. Raises UsageError for a name that occurs twice."""
    seen: dict[str, Path] = {}
    for folder in folders:
        name = folder.resolve().name
        if name in seen:
            raise UsageError(
                f"{seen[name]} and {folder}: two runs of one name, which rows could not tell apart",
                "name each run once, or rename one's folder",
            )
        seen[name] = folder
    return folders


def _tasks(folders: Sequence[Path]) -> dict[str, Task]:
    """Run -> its task, which must be what the run was judged on."""
    from evaluator.task import load_task
    from evo.run import existing, read_config
    from evo.turns import started_of

    found = {}
    for folder in folders:
        run_dir = existing(folder)
        spec = read_config(run_dir).task
        task = load_task(spec)
        if task.fingerprint != started_of(run_dir).task_fingerprint:
            raise UsageError(
                f"{folder}: task {spec} is not what it was when the run was judged",
                "restore the task's files; formats without new answers (trl-…, openevolve) need no task",
            )
        found[folder.resolve().name] = task
    return found


def _document(written: Exported) -> dict[str, object]:
    return {
        "folder": str(written.folder),
        "files": [str(path) for path in written.files],
        "rows": written.rows,
        "splits": written.splits,
        "considered": written.considered,
        "left_out": written.left_out,
        "timing_kinds": list(written.timing_kinds),
        "notes": list(written.notes),
    }


def _facts(written: Exported) -> dict[str, object]:
    return {
        "dataset": written.folder,
        "rows": f"{written.rows}, from {written.considered} turns",
        **{split: f"{count} rows" for split, count in written.splits.items() if len(written.splits) > 1},
        "left out": "; ".join(f"{count} {why}" for why, count in written.left_out.items()) or "none",
        "timings": ", ".join(written.timing_kinds) or "none",
    }
