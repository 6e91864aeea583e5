"""How many tokens a text costs: by its length, by a model's own tokenizer, or by asking a server."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from evaluator.errors import UsageError
from policy.chat import AskError
from policy.outcomes import Pause


class TokenCounter(Protocol):
    """What a prompt's budget is counted with."""

    def count(self, text: str) -> int:
        """Tokens in `text`, without special tokens around it."""
        ...

    def close(self) -> None:
        """Let go of what counting needs; safe to call twice."""


class ByRatio:
    """Bytes of UTF-8 / `bytes_per_token`, rounded up: needs no tokenizer.

    An estimate that errs on the long side: Triton source and prompts about it have 2.6 to 3.1 bytes a token in a
    vocabulary of 49 k tokens, and more in larger ones. Use `FromTokenizer` where a context must be filled to the brim.
    """

    def __init__(self, bytes_per_token: float = 2.5) -> None:
        if not bytes_per_token > 0:
            raise UsageError(f"bytes_per_token is {bytes_per_token}", "use a number above 0, e.g. 2.5")
        self.bytes_per_token = bytes_per_token

    def count(self, text: str) -> int:
        """Estimated tokens in `text`."""
        return math.ceil(len(text.encode("utf-8", "surrogatepass")) / self.bytes_per_token)

    def close(self) -> None:
        """Nothing to let go of."""


class FromTokenizer:
    """Counts with the tokenizer in a local folder, loaded at the first count; never from the network.

    The first `count` raises UsageError when the folder holds no tokenizer or transformers is not installed.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._tokenizer: Any = None

    def count(self, text: str) -> int:
        """Tokens in `text`, special tokens around it not counted."""
        if self._tokenizer is None:
            self._tokenizer = _load(self.path)
        # Tokenizers refuse unpaired surrogates.
        readable = text.encode("utf-8", "replace").decode()
        return len(self._tokenizer.encode(readable, add_special_tokens=False))

    def close(self) -> None:
        """Forget the tokenizer."""
        self._tokenizer = None


class FromServer:
    """Counts with a function that asks whoever serves the model; estimates by length where that raises AskError.

    After a failure that lasts, the server is left alone for `PAUSE_S`; one that cannot count at all, for good. Counts
    are remembered: a prompt that is cut to its budget counts the same parts again and again.
    """

    def __init__(self, ask: Callable[[str], int], close: Callable[[], None] = lambda: None) -> None:
        self._ask = ask
        self._close = close
        self._known: dict[str, int] = {}
        self._estimate = ByRatio()
        self._pause = Pause(PAUSE_S)
        self.counts = True
        """Whether the server can count at all, as far as it was asked."""

    def count(self, text: str) -> int:
        """Tokens in `text`, as the server says, or estimated."""
        known = self._known.get(text)
        return self._counted(text) if known is None else known

    def _counted(self, text: str) -> int:
        if not self.counts or self._pause.reason is not None:
            return self._estimate.count(text)
        try:
            # Servers refuse unpaired surrogates.
            found = self._ask(text.encode("utf-8", "replace").decode())
        except AskError as error:
            self.counts = error.reason not in ("bad_response", "wrong_model")
            self._pause.after(error)
            return self._estimate.count(text)
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[text] = found
        return found

    def close(self) -> None:
        """Let go of the server; safe to call twice."""
        self._close()


PAUSE_S = 30.0
REMEMBERED = 256


def _load(path: Path) -> Any:
    if not path.is_dir():
        raise UsageError(f"{path}: no folder with a tokenizer", "give the folder that holds tokenizer.json")
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise UsageError(
            f"{path}: transformers is needed to read a tokenizer", "pip install 'kernevo[train]'"
        ) from None
    try:
        return AutoTokenizer.from_pretrained(str(path), local_files_only=True)
    except (OSError, ValueError) as error:
        first = str(error).splitlines()[0]
        raise UsageError(
            f"{path}: no readable tokenizer: {first}", "give the folder that holds tokenizer.json"
        ) from None
