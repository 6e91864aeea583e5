"""The policy that runs a model of `transformers` in the campaign's own process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from policy.model_children import Workshop
from policy.model_policy import ModelPolicy, ModelSettings
from policy.transformers_chat import TransformersChat
from policy.transformers_engine import TransformersEngine, TransformersSettings, load


class TransformersPolicy(ModelPolicy):
    """`ModelPolicy` on a `TransformersChat`; the first question loads the model."""

    def __init__(
        self,
        engine: TransformersSettings,
        settings: ModelSettings | None = None,
        workshop: Workshop | None = None,
        *,
        alone: Callable[[], AbstractContextManager[None]] = nullcontext,
        load_engine: Callable[[TransformersSettings], TransformersEngine] = load,
    ) -> None:
        self.chat = TransformersChat(engine, alone=alone, load_engine=load_engine)
        super().__init__("transformers", self.chat, workshop or Workshop(), settings)

    def use_adapter(self, name: str, path: str | None) -> None:
        """Write children with the LoRA adapter in folder `path` from now on, or with the model itself when None.

        What was asked before is answered by the old one. Proposals carry `name` (the model's folder when None) as their
        `policy_version`. Raises AskError for an adapter that cannot be used; the old one stays in use.
        """
        self.on_loop(self.chat.use_adapter(name, path)).result()
