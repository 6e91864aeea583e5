"""`kernevo init`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from evo.cli import output
from evo.cli.apps import new_app

app = new_app()


@app.command()
def init(
    module: Annotated[Path, typer.Argument(help="Python file with Model and get_inputs, as in KernelBench.")],
    out: Annotated[Path | None, typer.Option(help="Folder to write; named like the module when left out.")] = None,
    seed: Annotated[Path | None, typer.Option(help="Python file with a first correct ModelNew.")] = None,
) -> None:
    """Make a task from a module of your own.

    The module is run to learn its shapes, so use only modules you trust. The folder's path is printed.
    """
    from evaluator.init_task import init_task

    if seed is not None:
        output.read_kernel(seed)
    made = init_task(module, module.with_suffix("") if out is None else out, seed)
    for note in made.notes:
        output.note(f"note: {note}")
    output.note(f"next: kernevo tasks check {shlex.quote(str(made.folder))}")
    print(made.folder)
