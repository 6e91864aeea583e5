"""The policy that asks an OpenAI-compatible server."""

from __future__ import annotations

from policy.model_children import Workshop
from policy.model_policy import ModelPolicy, ModelSettings
from policy.openai_client import OpenAIClient, OpenAISettings
from policy.tool_desk import ToolDesk


class OpenAIPolicy(ModelPolicy):
    """`ModelPolicy` on an `OpenAIClient`.

    Raises EnvironmentUnusableError when the package `openai` is not installed.
    """

    def __init__(
        self,
        server: OpenAISettings,
        settings: ModelSettings | None = None,
        workshop: Workshop | None = None,
        *,
        tools: ToolDesk | None = None,
    ) -> None:
        self.client = OpenAIClient(server)
        super().__init__("openai", self.client, workshop or Workshop(), settings, tools)

    def use_adapter(self, name: str, path: str | None) -> None:
        """Ask for another LoRA adapter, by its name on the server; with a path, vLLM loads it from there first."""
        self.client.use_adapter(name, path)
