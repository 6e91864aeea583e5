"""The policy that runs vLLM in the campaign's own process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from policy.model_children import Workshop
from policy.model_policy import ModelPolicy, ModelSettings
from policy.vllm_chat import VllmChat, VllmSettings, load


class VllmPolicy(ModelPolicy):
    """`ModelPolicy` on a `VllmChat`; the first question loads the model."""

    def __init__(
        self,
        engine: VllmSettings,
        settings: ModelSettings | None = None,
        workshop: Workshop | None = None,
        *,
        alone: Callable[[], AbstractContextManager[None]] = nullcontext,
        load_engine: Callable[[VllmSettings], Any] = load,
    ) -> None:
        self.chat = VllmChat(engine, alone=alone, load_engine=load_engine)
        super().__init__("vllm", self.chat, workshop or Workshop(), settings)
