"""The policy that runs vLLM in the campaign's own process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from policy.model_children import Workshop
from policy.model_policy import ModelPolicy, ModelSettings
from policy.policy import Policy
from policy.reward import RewardSettings
from policy.rule_policy import RulePolicy
from policy.tokens import TokenCounter
from policy.types import Form
from policy.vllm_chat import VllmChat, VllmSettings


class VllmPolicy(ModelPolicy):
    """`ModelPolicy` on a `VllmChat`, with the rule policy to fall back on; the first question loads the model."""

    def __init__(
        self,
        engine: VllmSettings,
        settings: ModelSettings | None = None,
        *,
        form: Form = "structured",
        rewrites: Sequence[str] | None = None,
        max_steps: int = 1,
        tokens: TokenCounter | None = None,
        reward: RewardSettings | None = None,
        fallback: Policy | None = None,
        alone: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        super().__init__(
            "vllm",
            VllmChat(engine, alone=alone),
            Workshop(form, rewrites=rewrites, max_steps=max_steps, tokens=tokens, reward=reward),
            fallback or RulePolicy(rewrites=rewrites),
            settings,
        )
