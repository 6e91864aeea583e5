"""One finding of `kernevo doctor`."""

from __future__ import annotations

from typing import Literal, NamedTuple

State = Literal["ok", "info", "warn", "fail"]


class Check(NamedTuple):
    """One thing looked at: `warn` costs safety or speed, `fail` makes campaigns impossible."""

    name: str
    state: State
    detail: str
    fix: str = ""
