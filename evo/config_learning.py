"""Settings of the training of the policy between generations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from evo.config_section import Section


class LearningConfig(Section):
    """The policy learns from the run while it goes on; needs `pip install 'kernevo[train]'`. Left out: it does not."""

    every: PositiveInt
    """Generations between two trainings."""
    base: Annotated[str, Field(min_length=1)]
    """Folder of the model that the policy asks: config.json, weights, tokenizer with a chat template."""
    method: Literal["sft", "dpo", "grpo", "trloo"] = "trloo"
    """What is learned from: elite steps, pairs of siblings, or rewards of new answers (grpo, trloo)."""
    steps: PositiveInt = 20
    """Optimizer steps of one training."""
    learning_rate: PositiveFloat = 1e-5
    """Step size."""
    rank: PositiveInt = 16
    """Rank of the LoRA matrices; what a server must allow (`--max-lora-rank` of vLLM)."""
    group: Annotated[int, Field(ge=2)] = 8
    """Answers to one prompt."""
    prompts: PositiveInt = 4
    """Prompts of one step."""
    micro_batch: PositiveInt = 8
    """Sequences that go through the model at once; halved when memory runs out."""
    answer_tokens: PositiveInt = 256
    """Tokens of an answer at most."""
    context_tokens: Annotated[int, Field(ge=16)] = 4096
    """Tokens of prompt and answer together; longer prompts are left out."""
    probe: Annotated[int, Field(ge=0)] = 8
    """Prompts answered and judged before and after: an adapter that earns less is dropped. 0 keeps every adapter."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the trainings; each adds its generation."""
    allow_modelled: bool = False
    """Train on modelled timings, which teach the cost model."""
