"""What a policy asks of a language model, wherever it runs, and how asking fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from evaluator.errors import KernevoError
from policy.tool_chat import ChatMessage, JsonSchema, ToolCall
from policy.types import Message

FailureReason = Literal[
    "unreachable",
    "timeout",
    "rate_limited",
    "server_error",
    "refused",
    "wrong_model",
    "adapter",
    "context_overflow",
    "bad_request",
    "bad_response",
    "budget",
]


class AskError(KernevoError):
    """A question got no answer. `reason` is what kind of failure it was; the text names the server, never the key."""

    def __init__(self, reason: FailureReason, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.reason: FailureReason = reason


@dataclass(frozen=True)
class Question:
    """One prompt and how many answers to it are wanted."""

    messages: tuple[Message, ...]
    prompt_tokens: int
    """Estimate, for limits and budgets; what the server counts goes into the ledger."""
    max_tokens: int
    """At most this many tokens in each answer."""
    n: int = 1
    seed: int | None = None
    schema: Mapping[str, Any] | None = None
    """JSON schema that the answer is held to, where the server can."""
    conversation: tuple[ChatMessage, ...] = ()
    """With tools: the messages as the server reads them, calls and their answers included, in place of `messages`."""
    tools: tuple[JsonSchema, ...] = ()
    """What the model may call, in OpenAI's format; read by models of OpenAI-compatible servers."""


@dataclass(frozen=True)
class Answer:
    """One answer with what the server told of it."""

    text: str
    finish_reason: str
    """`stop`, `length` (cut off at `max_tokens`) …"""
    model: str
    prompt_tokens: int
    completion_tokens: int
    dollars: float = 0.0
    """Its share of what the question cost: the shares of all its answers sum to the whole."""
    prompt_token_ids: tuple[int, ...] | None = None
    answer_token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    """Log-probability of each token of the answer, natural logarithm."""
    model_logprobs: tuple[float, ...] | None = None
    """Where `logprobs` are of a distribution that temperature, cuts and a schema changed: the model's own, of all."""
    asked_model: str = ""
    """What was asked, where that changes while questions wait; `ChatModel.model` otherwise."""
    tool_calls: tuple[ToolCall, ...] = ()


class ChatModel(Protocol):
    """Answers questions. Every method is called on one event loop."""

    @property
    def model(self) -> str:
        """What answers are asked of: the adapter where there is one, the model otherwise."""
        ...

    @property
    def sampling(self) -> Mapping[str, Any]:
        """Settings worth storing with every answer: temperature, top_p …"""
        ...

    def spent(self) -> Mapping[str, float]:
        """Tokens and dollars so far."""
        ...

    async def context_tokens(self) -> int:
        """Tokens that a prompt and its answer may have together."""
        ...

    async def ask(self, question: Question) -> list[Answer]:
        """One to `question.n` answers. Raises AskError."""
        ...

    async def close(self) -> None:
        """Let go of connections; safe to call twice."""
        ...
