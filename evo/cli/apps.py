"""How every typer app of the command line is set up."""

from __future__ import annotations

from typing import Any

import typer


def new_app(**settings: Any) -> typer.Typer:
    """An app with plain help (rich's takes 0.1 s to load), `-h`, and no traceback of typer's own."""
    given: dict[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None}
    return typer.Typer(context_settings={"help_option_names": ["-h", "--help"]}, **given | settings)
