"""The bodies that OpenAI-compatible servers send, read with suspicion: whatever is malformed raises ValueError."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from policy.chat import Answer, Question
from policy.tool_chat import ToolCall

_BYTES_PER_TOKEN = 3.5
LOWEST_LOGPROB = -9999.0
"""What stands for minus infinity, which JSON cannot say."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Token(_Body):
    logprob: float


class _Logprobs(_Body):
    content: tuple[_Token, ...] | None = None


class _Function(_Body):
    name: str = ""
    arguments: str | None = None


class _ToolCall(_Body):
    id: str = ""
    function: _Function


class _Message(_Body):
    content: str | None = None
    tool_calls: tuple[_ToolCall, ...] | None = None


class _Choice(_Body):
    message: _Message
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: tuple[int, ...] | None = None
    """vLLM's, with `return_token_ids`."""


class _Usage(_Body):
    prompt_tokens: int = Field(ge=0)
    completion_tokens: int | None = None


class _Completion(_Body):
    model: str = ""
    choices: tuple[_Choice, ...] = Field(min_length=1)
    usage: _Usage | None = None
    prompt_token_ids: tuple[int, ...] | None = None


class _Model(_Body):
    id: str
    max_model_len: int | None = None
    """vLLM's."""


class _Models(_Body):
    data: tuple[_Model, ...]


def models(text: str) -> dict[str, int | None]:
    """Names in a list of models -> their context in tokens. Raises ValueError."""
    return {model.id: model.max_model_len for model in _Models.model_validate_json(_clean(text)).data}


def _clean(text: str) -> bytes:
    """The same JSON without what Unicode cannot encode: models do answer with half of a surrogate pair."""
    try:
        return json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8", "replace")
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


def answers(text: str, question: Question) -> list[Answer]:
    """The answers in a chat completion, at most `question.n`. Raises ValueError, for empty choices too."""
    body = _Completion.model_validate_json(_clean(text))
    choices = body.choices[: question.n]
    usage = body.usage
    prompt = usage.prompt_tokens if usage else len(body.prompt_token_ids or ()) or question.prompt_tokens
    share = None if usage is None or usage.completion_tokens is None else usage.completion_tokens / len(choices)
    return [
        Answer(
            text=choice.message.content or "",
            finish_reason=choice.finish_reason or "stop",
            model=body.model,
            prompt_tokens=prompt,
            completion_tokens=_length(choice, share),
            prompt_token_ids=body.prompt_token_ids,
            answer_token_ids=choice.token_ids,
            logprobs=_logprobs(choice),
            tool_calls=_tool_calls(choice.message),
        )
        for choice in choices
    ]


def _tool_calls(message: _Message) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(
            id=call.id,
            name=call.function.name,
            arguments=(call.function.arguments or "").encode("utf-8", "replace").decode(),
        )
        for call in message.tool_calls or ()
    )


def _length(choice: _Choice, share: float | None) -> int:
    if choice.token_ids is not None:
        return len(choice.token_ids)
    if choice.logprobs is not None and choice.logprobs.content:
        return len(choice.logprobs.content)
    if share is not None:
        return round(share)
    return math.ceil(len((choice.message.content or "").encode()) / _BYTES_PER_TOKEN)


def _logprobs(choice: _Choice) -> tuple[float, ...] | None:
    tokens = choice.logprobs.content if choice.logprobs else None
    if tokens is None or any(math.isnan(token.logprob) for token in tokens):
        return None
    return tuple(max(LOWEST_LOGPROB, token.logprob) for token in tokens)


def with_cost(answer: Answer, dollars: float, redact: Callable[[str], str]) -> Answer:
    """The answer with its price, and without a key that a server might repeat."""
    calls = tuple(call.model_copy(update={"arguments": redact(call.arguments)}) for call in answer.tool_calls)
    return dataclasses.replace(answer, dollars=dollars, text=redact(answer.text), tool_calls=calls)


def add_schema(arguments: dict[str, Any], extra: dict[str, Any], field: str, schema: Mapping[str, Any]) -> None:
    """Put a JSON schema where the server looks for it: into the request's `arguments` or its `extra` body."""
    if field == "response_format":
        named = {"name": "answer", "schema": dict(schema)}
        arguments["response_format"] = {"type": "json_schema", "json_schema": named}
    elif field == "structured_outputs":
        extra["structured_outputs"] = {"json": dict(schema)}
    elif field == "guided_json":
        extra["guided_json"] = dict(schema)
