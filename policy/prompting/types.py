"""What a prompt is made for and what comes out."""

from __future__ import annotations

from typing import Literal

from evaluator.errors import UsageError
from evaluator.types import Frozen
from policy.types import Message

Phase = Literal["analyse", "generate", "tune"]
"""What is asked for: what bounds the parent and ideas, a new kernel, or values for the parent's tunables."""


class Repair(Frozen):
    """An answer to the same prompt that could not be used, shown again with what was wrong with it."""

    answer: str
    """The raw answer."""
    error: str
    """Why it could not be used: what the reader of answers or the compiler said."""


class Prompt(Frozen):
    """A conversation that fits its budget."""

    messages: tuple[Message, ...]
    tokens: int
    """By the counter that was given, `MESSAGE_TOKENS` for each message's frame included."""
    dropped: tuple[str, ...] = ()
    """Sections that were left out or shortened for the budget, e.g. `attempt 3` or `inspiration 1: source`."""


class PromptTooLongError(UsageError):
    """What a prompt cannot do without exceeds its budget (exit 2)."""

    def __init__(self, needed: int, budget: int) -> None:
        super().__init__(
            f"rules, task and the parent's source alone need {needed} prompt tokens, and the budget is {budget}",
            "allow more prompt tokens, or serve the model with a longer context",
        )
        self.needed = needed
        self.budget = budget
