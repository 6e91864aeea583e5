"""Training that backs off when memory runs out. Imports torch when called."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evaluator.errors import EnvironmentUnusableError
from policy.training.arguments import Fit
from policy.training.checkpoints import last_checkpoint

LOG = logging.getLogger("kernevo.training")


def train(make: Callable[[Fit], Any], first: Fit, rows: int, checkpoints: Path) -> tuple[Any, int]:
    """Train to the end; returns the trainer and how often it was made smaller.

    `make` builds a trainer with fresh weights; it goes on from the newest whole checkpoint. A step keeps its `rows`:
    what the micro-batch loses, accumulation gains. Raises EnvironmentUnusableError when one sequence does not fit.
    """
    fit, times = first, 0
    while True:
        trainer = None
        try:
            trainer = make(fit)
            found = last_checkpoint(checkpoints)
            trainer.train(resume_from_checkpoint=None if found is None else str(found))
            return trainer, times
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        smaller = fit.smaller(rows)
        if smaller is None:
            raise EnvironmentUnusableError(
                "memory is too small for one sequence, with recomputed activations too",
                "a smaller --context-tokens or --rank, a smaller model, or a larger GPU",
            )
        LOG.warning("out of memory with micro-batch %d: going on with %d", fit.micro_batch, smaller.micro_batch)
        fit, times = smaller, times + 1
        del trainer
        _free()


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether a GPU's or the host's allocator refused."""
    import torch

    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _free() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
