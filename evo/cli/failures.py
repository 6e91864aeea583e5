"""How failures reach the user: a message with its fix, or one line and the path of a saved traceback."""

from __future__ import annotations

import os
import platform
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import typer

from evaluator.version import __version__


def debugging() -> bool:
    """Whether the user asked for tracebacks (--debug or KERNEVO_DEBUG=1)."""
    return os.environ.get("KERNEVO_DEBUG", "") not in ("", "0")


def show(message: str) -> None:
    """Print an error on stderr, red on a terminal."""
    head, _, rest = message.partition("\n")
    typer.secho(f"error: {head}", fg=typer.colors.RED, err=True)
    if rest:
        typer.echo(rest, err=True)


def crash_message(error: BaseException, argv: Sequence[str]) -> str:
    """One line for an error nobody foresaw, after its traceback was saved."""
    said = str(error).strip().splitlines()
    what = f"{type(error).__name__}: {said[0]}" if said else type(error).__name__
    saved = save_traceback(error, argv)
    where = f"the traceback is in {saved}" if saved else "run again with --debug to see the traceback"
    return f"unexpected failure: {what}\n  fix: this is a fault in Kernevo, please report it; {where}"


def save_traceback(error: BaseException, argv: Sequence[str]) -> Path | None:
    """Write the traceback to a log of its own; None when no folder can be written."""
    lines = [
        f"kernevo {__version__}, Python {platform.python_version()}, {platform.platform()}\n",
        f"command: kernevo {' '.join(argv)}\n\n",
        *traceback.format_exception(error),
    ]
    for folder in (_state_folder(), Path(tempfile.gettempdir())):
        path = folder / f"kernevo-crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(lines), encoding="utf-8", errors="backslashreplace")
        except OSError:
            continue
        return path
    return None


def _state_folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "kernevo"
