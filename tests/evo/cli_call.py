"""Calls the command line in this process and returns what a shell would see."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from evo.cli.main import main


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


def call(*args: object) -> Outcome:
    """`kernevo ARGS`."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(arg) for arg in args])
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 0
    return Outcome(code, out.getvalue(), err.getvalue())
