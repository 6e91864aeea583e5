"""The training arguments that all methods share. Imports torch."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policy.training.settings import TrainingSettings


@dataclass(frozen=True)
class Fit:
    """How a step is cut so that it fits into memory."""

    micro_batch: int
    recompute: bool = False
    """Compute activations twice instead of keeping them."""

    @classmethod
    def first(cls, settings: TrainingSettings) -> Fit:
        """As large as was asked for and divides a step."""
        return cls(_divisor(settings.rows, settings.micro_batch))

    def smaller(self, rows: int) -> Fit | None:
        """The next to try after memory ran out: half the micro-batch, then recomputing; None behind that."""
        if self.micro_batch > 1:
            return Fit(_divisor(rows, self.micro_batch // 2))
        return None if self.recompute else Fit(1, recompute=True)


def _divisor(rows: int, most: int) -> int:
    return max(count for count in range(1, min(rows, most) + 1) if rows % count == 0)


def common(settings: TrainingSettings, folder: Path, fit: Fit) -> dict[str, Any]:
    """Keyword arguments of TRL's SFTConfig, DPOConfig and GRPOConfig."""
    import torch

    gpu = torch.cuda.is_available()
    board = importlib.util.find_spec("tensorboard") is not None
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(folder / "tensorboard")  # transformers 5 has no argument for it
    return {
        "output_dir": str(folder / "checkpoints"),
        "max_steps": settings.steps,
        "learning_rate": settings.learning_rate,
        "lr_scheduler_type": "constant",
        "per_device_train_batch_size": fit.micro_batch,
        "gradient_accumulation_steps": settings.rows // fit.micro_batch,
        "gradient_checkpointing": fit.recompute,
        "logging_steps": 1,
        # NaN must be seen, not replaced by the mean of earlier losses.
        "logging_nan_inf_filter": False,
        "save_steps": min(settings.save_every, settings.steps),
        "save_total_limit": 2,
        "seed": settings.seed,
        "bf16": gpu,
        "use_cpu": not gpu,
        "report_to": ["tensorboard"] if board else [],
        "disable_tqdm": True,
    }
