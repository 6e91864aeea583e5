"""What a training is asked to do."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from evaluator.types import Frozen

Method = Literal["sft", "grpo", "trloo", "dpo"]
Answers = Literal["sampled", "recorded"]


class TrainingSettings(Frozen):
    """Everything but the data; it is stored beside the adapter and a resumed training must be asked for the same."""

    method: Method
    base: str
    """Folder of the model: config.json, weights, tokenizer with a chat template."""
    adapter: str | None = None
    """Folder of the adapter that the training goes on from."""
    steps: int = Field(default=50, ge=1)
    """Optimizer steps."""
    learning_rate: float = Field(default=1e-5, gt=0)
    rank: int = Field(default=16, ge=1)
    """Rank of the LoRA matrices; of an adapter that is gone on from, its own."""
    group: int = Field(default=8, ge=2)
    """Answers to one prompt."""
    prompts: int = Field(default=4, ge=1)
    """Prompts of one step; a step of SFT or DPO takes `group * prompts` rows, so that steps cost about the same."""
    micro_batch: int = Field(default=8, ge=1)
    """Sequences that go through the model at once; halved when memory runs out."""
    answer_tokens: int = Field(default=256, ge=1)
    """Of a sampled answer, at most."""
    context_tokens: int = Field(default=4096, ge=16)
    """Of prompt and answer together; rows that are longer are left out."""
    temperature: float = Field(default=1.0, gt=0)
    rewrites: tuple[str, ...] | None = None
    """Rewrites that sampled structured answers may use; the whole catalogue when left out."""
    answers: Answers = "sampled"
    """`sampled`: the model answers anew and is judged; `recorded`: the runs' own answers, importance-corrected."""
    gamma: float = Field(default=1.0, ge=0, le=1)
    """Discount of later turns' rewards (`trloo` on recorded answers)."""
    shuffled: bool = False
    """Shuffle rewards within each group: the control that must not learn."""
    seed: int = 0
    save_every: int = Field(default=10, ge=1)
    """Steps between checkpoints."""
    probe: int = Field(default=0, ge=0)
    """Prompts that are answered and judged before and after; 0 for none."""
    min_gain: float = Field(default=0.05, ge=0)
    """SFT takes steps that gain at least this share over their parent."""
    per_lineage: int = Field(default=8, ge=1)
    """SFT takes at most so many steps of one lineage."""
    allow_modelled: bool = False

    @property
    def reinforces(self) -> bool:
        """Whether the method needs rewards of its own."""
        return self.method in ("grpo", "trloo")

    @property
    def samples(self) -> bool:
        """Whether the model answers, so that a judge is needed."""
        return (self.reinforces and self.answers == "sampled") or self.probe > 0

    @property
    def rows(self) -> int:
        """Sequences of one optimizer step."""
        return self.group * self.prompts
