"""What asking a model has cost, and when the budget for it is spent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from policy.chat import AskError

_MILLION = 1_000_000


@dataclass(frozen=True)
class Prices:
    """Dollars per million tokens."""

    prompt: float = 0.0
    completion: float = 0.0

    def cost(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Dollars for so many tokens."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / _MILLION


class Ledger:
    """Sums tokens and dollars. Questions in flight hold a reservation of the most they can cost, so that a budget is
    never overdrawn, however many are asked at once.
    """

    def __init__(
        self, prices: Prices | None = None, *, max_tokens: int | None = None, max_dollars: float | None = None
    ) -> None:
        self.prices = prices or Prices()
        self.requests = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self._max_tokens = max_tokens
        self._max_dollars = max_dollars
        self._reserved_tokens = 0
        self._reserved_dollars = 0.0

    @property
    def dollars(self) -> float:
        """Dollars spent."""
        return self.prices.cost(self.prompt_tokens, self.completion_tokens)

    @contextmanager
    def reserved(self, prompt_tokens: int, completion_tokens: int) -> Iterator[None]:
        """Hold tokens while a question is in flight. Raises AskError("budget") when they are no longer there."""
        tokens = prompt_tokens + completion_tokens
        dollars = self.prices.cost(prompt_tokens, completion_tokens)
        self._check(tokens, dollars)
        self._reserved_tokens += tokens
        self._reserved_dollars += dollars
        try:
            yield
        finally:
            self._reserved_tokens -= tokens
            self._reserved_dollars -= dollars

    def _check(self, tokens: int, dollars: float) -> None:
        spent = self.prompt_tokens + self.completion_tokens
        if self._max_tokens is not None and spent + self._reserved_tokens + tokens > self._max_tokens:
            raise AskError(
                "budget",
                f"{spent} of policy.max_tokens_total = {self._max_tokens} tokens are spent, and a question may "
                f"need {tokens} more",
                "raise policy.max_tokens_total",
            )
        if self._max_dollars is not None and self.dollars + self._reserved_dollars + dollars > self._max_dollars:
            raise AskError(
                "budget",
                f"${self.dollars:.4f} of policy.max_dollars = ${self._max_dollars:.4f} are spent, and a question may "
                f"cost ${dollars:.4f} more",
                "raise policy.max_dollars",
            )

    def spend(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Book one answered question."""
        self.requests += 1
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens

    def summary(self) -> dict[str, float]:
        """Name -> number, for summaries."""
        return {
            "requests": self.requests,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "dollars": round(self.dollars, 6),
        }
