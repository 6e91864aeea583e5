"""Why an answer cannot be used, in words that the model that gave it can act on."""

from __future__ import annotations

from typing import Literal

AnswerKind = Literal[
    "empty",
    "truncated",
    "no_code",
    "bad_json",
    "unknown_rewrite",
    "unknown_tunable",
    "bad_value",
    "does_not_apply",
    "search_not_found",
    "ambiguous_search",
    "outside_region",
    "syntax",
    "no_entry_point",
    "unchanged",
]


class AnswerError(ValueError):
    """An answer that gives no child. `str(error)` says what is wrong, where, and what to answer instead.

    It is meant to be sent back to the model as it is, in one repair turn.
    """

    def __init__(self, kind: AnswerKind, message: str, fix: str) -> None:
        super().__init__(f"{message}\n{fix}")
        self.kind: AnswerKind = kind
        self.message = message
        """What is wrong and where."""
        self.fix = fix
        """What to answer instead."""
