"""Talking with a model that may call tools: the smallest chat, and the loop that answers its calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pydantic import Field

from evaluator.types import Frozen

ChatMessage = dict[str, Any]
"""One message as OpenAI-compatible servers read it: role, content, and tool calls or the id of the call answered."""
JsonSchema = Mapping[str, Any]

CALLS_PER_ROUND = 8
TOO_MANY = f"Not done: one answer may call at most {CALLS_PER_ROUND} tools. Ask again if it still matters."


class ToolCall(Frozen):
    """One call as the model wrote it."""

    id: str
    name: str
    arguments: str
    """JSON, or what the model took for it."""


class TokenUsage(Frozen):
    """Tokens of one answer, or of all answers of a conversation."""

    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
        )


class ChatAnswer(Frozen):
    """What a model said."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: TokenUsage = TokenUsage()


class Chat(Protocol):
    """A model that answers conversations, one at a time."""

    @property
    def model(self) -> str:
        """The model's name; answers that are kept are kept under it."""
        ...

    def complete(
        self, messages: Sequence[ChatMessage], tools: Sequence[JsonSchema] | None, schema: JsonSchema | None
    ) -> ChatAnswer:
        """The next answer. `tools` in OpenAI's format; `schema` holds the text to JSON where the server can.

        Raises KernevoError when there is no answer.
        """
        ...


class Tools(Protocol):
    """What a loop needs of a toolbox; see `policy.tools.ToolBox`."""

    def definitions(self) -> list[dict[str, Any]]:
        """The tools in OpenAI's format."""
        ...

    def call(self, name: str, arguments_json: str) -> str:
        """The answer of one tool; never raises."""
        ...


class Conversation(Frozen):
    """A whole exchange with tools."""

    text: str
    """The model's last answer."""
    messages: tuple[ChatMessage, ...]
    """All messages, those that were given and the last answer included."""
    rounds: int
    """Answers that called tools."""
    usage: TokenUsage
    """Of all answers together."""


def run_with_tools(chat: Chat, messages: Sequence[ChatMessage], toolbox: Tools, max_rounds: int) -> Conversation:
    """Let `chat` answer `messages`, calling tools in up to `max_rounds` of its answers.

    After that it is asked once more without tools, so that every conversation ends in an answer. Every call gets its
    message, as servers demand, also those beyond `CALLS_PER_ROUND`. Raises KernevoError when the chat does.
    """
    said = list(messages)
    usage = TokenUsage()
    definitions = toolbox.definitions()
    for rounds in range(max_rounds + 1):
        may_call = bool(definitions) and rounds < max_rounds
        answer = chat.complete(said, definitions if may_call else None, None)
        usage += answer.usage
        said.append(_as_message(answer, keep_calls=may_call))
        if not (may_call and answer.tool_calls):
            break
        said += _answers(answer.tool_calls, toolbox)
    return Conversation(text=answer.text, messages=tuple(said), rounds=rounds, usage=usage)


def _as_message(answer: ChatAnswer, keep_calls: bool) -> ChatMessage:
    message: ChatMessage = {"role": "assistant", "content": answer.text}
    if keep_calls and answer.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in answer.tool_calls
        ]
    return message


def _answers(calls: Sequence[ToolCall], toolbox: Tools) -> list[ChatMessage]:
    return [
        {
            "role": "tool",
            "tool_call_id": call.id,
            "content": toolbox.call(call.name, call.arguments) if number < CALLS_PER_ROUND else TOO_MANY,
        }
        for number, call in enumerate(calls)
    ]
