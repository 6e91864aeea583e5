"""`kernevo harvest`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evo.cli import complete, output
from evo.cli.apps import new_app
from evo.cli.runs import find_run

app = new_app()


@app.command()
def harvest(
    run: complete.RunArgument,
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
    top: Annotated[int, typer.Option(min=1, help="How many kernels, each of another structure.")] = 1,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier harvest.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Copy a run's best kernels out as a folder to use elsewhere.

    Each kernel file holds its best tunables and runs on its own; a test, a benchmark, a PyTorch operator and the task
    lie beside them. The kernels' paths are printed, best first.
    """
    folder = find_run(run)
    from evo.harvest import harvest as write_kernels
    from evo.run import Run

    paths = write_kernels(Run.load(folder), top, out, force=force, package=True)
    if as_json:
        output.print_json({"folder": str(out), "kernels": [str(path) for path in paths]})
        return
    for path in paths:
        print(path)
