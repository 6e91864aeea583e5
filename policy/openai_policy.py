"""The policy that asks an OpenAI-compatible server."""

from __future__ import annotations

from collections.abc import Sequence

from policy.model_children import Workshop
from policy.model_policy import ModelPolicy, ModelSettings
from policy.openai_client import OpenAIClient, OpenAISettings
from policy.policy import Policy
from policy.reward import RewardSettings
from policy.rule_policy import RulePolicy
from policy.tokens import TokenCounter
from policy.tool_desk import ToolDesk
from policy.types import Form


class OpenAIPolicy(ModelPolicy):
    """`ModelPolicy` on an `OpenAIClient`, with the rule policy to fall back on.

    Raises EnvironmentUnusableError when the package `openai` is not installed.
    """

    def __init__(
        self,
        server: OpenAISettings,
        settings: ModelSettings | None = None,
        *,
        form: Form = "structured",
        rewrites: Sequence[str] | None = None,
        max_steps: int = 1,
        tokens: TokenCounter | None = None,
        reward: RewardSettings | None = None,
        fallback: Policy | None = None,
        tools: ToolDesk | None = None,
    ) -> None:
        self.client = OpenAIClient(server)
        super().__init__(
            "openai",
            self.client,
            Workshop(form, rewrites=rewrites, max_steps=max_steps, tokens=tokens, reward=reward),
            fallback or RulePolicy(rewrites=rewrites),
            settings,
            tools=tools,
        )
