"""`kernevo export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evo.cli import output
from evo.cli.apps import new_app
from evo.cli.runs import find_run

if TYPE_CHECKING:
    from policy.export import Exported

app = new_app()


@app.command()
def export(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Run folders, or their names under runs/.")],
    format_: Annotated[str, typer.Option("--format", help="trl-sft or trl-grpo.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write the dataset to; exports/FORMAT in the first run when left out.")
    ] = None,
    allow_modelled: Annotated[
        bool, typer.Option("--allow-modelled", help="Export modelled timings too, marked as such in every row.")
    ] = False,
    allow_held_out: Annotated[bool, typer.Option("--allow-held-out", help="Export held-out tasks too.")] = False,
    min_gain: Annotated[float, typer.Option(min=0, help="SFT keeps steps that gain at least this share.")] = 0.05,
    per_lineage: Annotated[int, typer.Option(min=1, help="SFT keeps at most so many steps of one lineage.")] = 8,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the dataset in the folder.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write a run's trajectories for a training library.

    The folder is read by `datasets.load_dataset(FOLDER)`. Modelled timings are no measured reward: they are refused
    unless --allow-modelled is given.
    """
    folders = [find_run(run) for run in runs]
    from evo.run import Run
    from evo.turns import turns_of_run
    from policy.export import export as write_dataset
    from policy.exports.base import Options

    written = write_dataset(
        [turn for folder in folders for turn in turns_of_run(Run.load(folder))],
        format_,
        out if out is not None else folders[0] / "exports" / format_,
        allow_modelled=allow_modelled,
        allow_held_out=allow_held_out,
        force=force,
        options=Options(min_gain=min_gain, per_lineage=per_lineage),
    )
    for note in written.notes:
        output.note(f"note: {note}")
    if as_json:
        output.print_json(_document(written))
    else:
        output.print_facts(_facts(written))


def _document(written: Exported) -> dict[str, object]:
    return {
        "folder": str(written.folder),
        "files": [str(path) for path in written.files],
        "rows": written.rows,
        "considered": written.considered,
        "timing_kinds": list(written.timing_kinds),
        "notes": list(written.notes),
    }


def _facts(written: Exported) -> dict[str, object]:
    return {
        "dataset": written.folder,
        "rows": f"{written.rows} of {written.considered} turns",
        "timings": ", ".join(written.timing_kinds) or "none",
    }
