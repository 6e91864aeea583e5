"""`kernevo report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evo.cli import complete
from evo.cli.apps import new_app
from evo.cli.runs import find_run

app = new_app()


@app.command()
def report(
    run: complete.RunArgument,
    out: Annotated[Path | None, typer.Option(help="File to write; report.html in the run when left out.")] = None,
) -> None:
    """Write a run's report.html.

    One self-contained page: convergence, verdicts, the lineage of the best kernel with its source diffs.
    """
    path = find_run(run)
    from evo.report import render
    from evo.run import Run

    print(render(Run.load(path), out))
