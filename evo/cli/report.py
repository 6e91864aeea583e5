"""`kernevo report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evaluator.errors import UsageError
from evo.cli import complete, output
from evo.cli.apps import new_app
from evo.cli.runs import find_run

app = new_app()


@app.command()
def report(
    run: complete.RunArgument,
    out: Annotated[Path | None, typer.Option(help="File to write; report.html in the run when left out.")] = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the figures into this folder instead of the page.")
    ] = None,
    png: Annotated[bool, typer.Option("--png", help="Figures as PNG; SVG when left out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write a run's report.html.

    One self-contained page: convergence, verdicts, the lineage of the elites with their source diffs, credit, profile,
    training, cost.
    """
    if figures is None and png:
        raise UsageError("--png: says what figures are written as", "give their folder with --figures DIR")
    if figures is not None and out is not None:
        raise UsageError("--out and --figures: one is for the page, the other for its figures", "leave one out")
    path = find_run(run)
    from evo.run import Run

    if figures is not None:
        from evo.report.images import write_images

        written = write_images(Run.load(path), figures, "png" if png else "svg")
    else:
        from evo.report import render

        written = [render(Run.load(path), out)]
    if as_json:
        output.print_json({"run": str(path), "files": [str(file) for file in written]})
        return
    for file in written:
        print(file)
