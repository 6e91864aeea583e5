"""A `ChatModel` that answers on its event loop, as a `Chat` that plain code waits for: for tools and reviewers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import CancelledError

from policy.chat import Answer, AskError, ChatModel, Question
from policy.loop_thread import LoopThread
from policy.tokens import TokenCounter
from policy.tool_chat import ChatAnswer, ChatMessage, JsonSchema, TokenUsage
from policy.types import Message


class ModelChat:
    """Asks `model` on `loop` and waits. Any thread may call it, but not the loop's own, which would wait for itself.

    An answer has at most `max_tokens` tokens, fewer where the conversation leaves less of the model's context.
    """

    def __init__(
        self, model: ChatModel, loop: LoopThread, *, max_tokens: int, tokens: TokenCounter, seed: int | None = None
    ) -> None:
        self._model = model
        self._loop = loop
        self._max_tokens = max_tokens
        self._tokens = tokens
        self._seed = seed

    @property
    def model(self) -> str:
        """The model's name."""
        return self._model.model

    def complete(
        self, messages: Sequence[ChatMessage], tools: Sequence[JsonSchema] | None, schema: JsonSchema | None
    ) -> ChatAnswer:
        """The next answer. Raises AskError, also when the conversation fills the context or the loop is stopped."""
        try:
            answer = self._loop.start(self._ask(messages, tuple(tools or ()), schema)).result()
        except CancelledError:
            raise AskError("unreachable", f"{self.model}: asking was stopped before there was an answer") from None
        usage = TokenUsage(prompt_tokens=answer.prompt_tokens, completion_tokens=answer.completion_tokens)
        return ChatAnswer(text=answer.text, tool_calls=answer.tool_calls, usage=usage)

    async def _ask(
        self, messages: Sequence[ChatMessage], tools: tuple[JsonSchema, ...], schema: JsonSchema | None
    ) -> Answer:
        # On another thread: who counts may have to ask a server, and the loop must not wait for that.
        said = json.dumps([*messages, *tools], ensure_ascii=False)
        used = await asyncio.to_thread(self._tokens.count, said)
        room = await self._model.context_tokens() - used
        if room < 1:
            raise AskError(
                "context_overflow",
                f"{self.model}: a conversation of about {used} tokens fills its context",
                "lower answer_chars of the toolbox or max_rounds, or serve the model with a longer context",
            )
        has_calls = any(message.keys() != {"role", "content"} for message in messages)
        question = Question(
            messages=() if has_calls else tuple(Message.model_validate(message) for message in messages),
            conversation=tuple(messages) if has_calls else (),
            tools=tools,
            prompt_tokens=used,
            max_tokens=min(self._max_tokens, room),
            seed=self._seed,
            schema=schema,
        )
        return (await self._model.ask(question))[0]
