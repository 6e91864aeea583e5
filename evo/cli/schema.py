"""`kernevo schema`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from evo.cli import output
from evo.cli.apps import new_app

app = new_app()


@app.command()
def schema(
    out: Annotated[Path | None, typer.Option(help="File to write; stdout when left out.")] = None,
) -> None:
    """Print the config's JSON schema for editors.

    Put `# yaml-language-server: $schema=kernevo.schema.json` on the first line of a config to use it.
    """
    from evo.schema import config_schema

    text = json.dumps(config_schema(), indent=2)
    if out is None:
        print(text)
    else:
        output.write_file(out, text + "\n")
        output.note(f"wrote {out}")
