"""`kernevo resume`."""

from __future__ import annotations

from typing import Annotated

import typer

from evo.cli import complete
from evo.cli.apps import new_app
from evo.cli.runs import find_run, session

app = new_app()


@app.command()
def resume(
    run: complete.RunArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")] = False,
) -> None:
    """Continue a run exactly where it stopped.

    The journal is replayed, then the search goes on with the same random stream, as if it had never stopped.
    """
    path = find_run(run)
    from evo.campaign import Campaign

    session(Campaign.resume(path), as_json=as_json)
