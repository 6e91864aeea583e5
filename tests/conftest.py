"""Tests marked `gpu` run where there is an NVIDIA GPU and are skipped elsewhere; no property has a time limit."""

from __future__ import annotations

import pytest
from hypothesis import settings

# How long an example takes says how busy the machine is.
settings.register_profile("kernevo", deadline=None)
settings.load_profile("kernevo")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is None:
        return
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
