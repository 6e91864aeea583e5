"""Autotuned kernels without a driver: the first config stands for all of them.

Inside the untrusted worker only. Choosing a config takes a GPU that times them all. Whoever wants another one judged
writes it into a source of its own (`evaluator.autotune`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch


@contextmanager
def first_config_only() -> Iterator[None]:
    """Inside, every autotuned kernel runs as if its first config were its only one, hooks of that config included."""
    from triton.runtime.autotuner import Autotuner

    original = Autotuner.run

    def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        configs = tuner.configs
        tuner.configs = configs[:1]
        try:
            return original(tuner, *args, **kwargs)
        finally:
            tuner.configs = configs

    with patch.object(Autotuner, "run", run):
        yield
