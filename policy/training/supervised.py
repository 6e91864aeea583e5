"""SFT on elite steps and DPO on pairs of siblings, by TRL's trainers. Imports torch and TRL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from policy.training.arguments import Fit, common
from policy.training.base_model import lora
from policy.training.data import Row
from policy.training.settings import TrainingSettings
from policy.training.watching import Steps, Watch, Watched, quiet


class WatchedSFT(Watched, SFTTrainer):  # type: ignore[misc]  # TRL is not typed for us
    """TRL's SFTTrainer. Rows have `prompt` and `completion`, so that TRL trains on the answer alone."""


class WatchedDPO(Watched, DPOTrainer):  # type: ignore[misc]  # TRL is not typed for us
    """TRL's DPOTrainer."""


def sft_trainer(
    settings: TrainingSettings, folder: Path, fit: Fit, model: Any, tokenizer: Any, rows: Sequence[Row], watch: Watch
) -> Any:
    """A trainer on `sft_rows`."""
    arguments = SFTConfig(**common(settings, folder, fit), max_length=settings.context_tokens)
    return _made(WatchedSFT, settings, arguments, model, tokenizer, rows, watch)


def dpo_trainer(
    settings: TrainingSettings, folder: Path, fit: Fit, model: Any, tokenizer: Any, rows: Sequence[Row], watch: Watch
) -> Any:
    """A trainer on `dpo_rows`; the reference is the model without the adapter, or the adapter it goes on from."""
    arguments = DPOConfig(**common(settings, folder, fit), max_length=settings.context_tokens)
    return _made(WatchedDPO, settings, arguments, model, tokenizer, rows, watch)


def _made(
    kind: Any, settings: TrainingSettings, arguments: Any, model: Any, tokenizer: Any, rows: Sequence[Row], watch: Watch
) -> Any:
    trainer = kind(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_list(list(rows)),
        processing_class=tokenizer,
        peft_config=None if settings.adapter else lora(settings.rank),
    )
    trainer.watch = watch
    trainer.add_callback(Steps(watch, trainer.model))
    quiet(trainer)
    return trainer
