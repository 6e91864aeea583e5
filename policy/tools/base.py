"""What a tool is: a name, typed arguments, and an answer whose found parts are data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from evaluator.types import Frozen


class ToolArgs(BaseModel):
    """Base of a tool's arguments; its JSON schema is what the model is told."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolError(ValueError):
    """The tool cannot answer; the model reads the text."""


class Found(Frozen):
    """One piece of text that a tool hands on. Others wrote it, so it is shown between fences."""

    title: str
    text: str
    language: str = "text"


class ToolAnswer(Frozen):
    """A tool's answer: words of our own, and what was found."""

    summary: str
    found: tuple[Found, ...] = ()


ArgsT = TypeVar("ArgsT", bound=ToolArgs)


class Tool(ABC, Generic[ArgsT]):
    """One tool. Belongs to one candidate: what it counts and remembers is the candidate's."""

    name: ClassVar[str]
    description: ClassVar[str]
    """For the model: what the tool does and when it helps."""
    Args: ClassVar[type[ToolArgs]]

    @abstractmethod
    def answer(self, args: ArgsT, room: int) -> ToolAnswer:
        """Answer one call in about `room` characters. Raises ToolError with words for the model."""

    def definition(self) -> dict[str, Any]:
        """The tool in OpenAI's `tools=` format."""
        schema = self.Args.model_json_schema()
        properties = {name: _untitled(prop) for name, prop in schema.get("properties", {}).items()}
        parameters = {
            "type": "object",
            "properties": properties,
            "required": schema.get("required", []),
            "additionalProperties": False,
        }
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}


def _untitled(prop: dict[str, Any]) -> dict[str, Any]:
    # pydantic titles every property after itself: tokens that tell a model nothing.
    return {key: value for key, value in prop.items() if key != "title"}
