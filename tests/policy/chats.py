"""Chats that say what they are told to."""

from __future__ import annotations

import json

from policy.tool_chat import ChatAnswer, TokenUsage, ToolCall


class FakeChat:
    """Says `answers` in turn, the last one for ever, and keeps what it was asked. An exception among them is raised."""

    def __init__(self, *answers, model="fake"):
        self.model = model
        self.asked = []
        self._answers = list(answers)

    def complete(self, messages, tools, schema):
        self.asked.append({"messages": [dict(message) for message in messages], "tools": tools, "schema": schema})
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, str):
            return ChatAnswer(text=answer, usage=TokenUsage(prompt_tokens=10, completion_tokens=1))
        return answer


def calling(*calls):
    """An answer that calls tools: (name, arguments) or (name, text that is no JSON)."""
    made = [
        ToolCall(id=f"call{number}", name=name, arguments=args if isinstance(args, str) else json.dumps(args))
        for number, (name, args) in enumerate(calls)
    ]
    return ChatAnswer(text="", tool_calls=tuple(made), usage=TokenUsage(prompt_tokens=10, completion_tokens=5))
