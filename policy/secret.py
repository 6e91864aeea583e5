"""The API key: read from the environment, kept in memory, cut out of every text that leaves."""

from __future__ import annotations

import os
import re

from evaluator.errors import UsageError

NO_KEY = "EMPTY"
"""What servers without keys are sent; vLLM's convention."""
MASK = "[key]"
_SHORTEST = 6
"""A shorter key is left in texts: cutting `a` out of everything would hide what went wrong."""


class ApiKey:
    """A key that shows itself to nobody but the client that sends it."""

    def __init__(self, text: str) -> None:
        self._text = text

    @classmethod
    def from_environment(cls, variable: str) -> ApiKey:
        """The key in `variable`, `EMPTY` where it is unset. Raises UsageError for what cannot be sent in a header."""
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
            # Not repeated in the error: it is most likely the key itself.
            raise UsageError(
                "api_key_env is no name of an environment variable",
                "write the variable's name, e.g. OPENAI_API_KEY, and put the key into the variable",
            )
        text = os.environ.get(variable, "").strip()
        if not (text.isascii() and text.isprintable()):
            raise UsageError(f"${variable} holds characters that no key has", "set it to the key alone, on one line")
        return cls(text or NO_KEY)

    @property
    def is_set(self) -> bool:
        """Whether there is a key at all."""
        return self._text != NO_KEY

    def reveal(self) -> str:
        """The key, for the request's header only."""
        return self._text

    def redact(self, text: str) -> str:
        """`text` without the key."""
        if not self.is_set or len(self._text) < _SHORTEST:
            return text
        return text.replace(self._text, MASK)

    def __repr__(self) -> str:
        return f"ApiKey({MASK if self.is_set else NO_KEY})"
