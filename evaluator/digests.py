"""Names and SHA-256 digests of a candidate's inputs and parameters, made alike by the judge and the worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluator import wire


def digests(state: Mapping[str, Any], inputs: list[Any]) -> dict[str, str]:
    """SHA-256 of every tensor by its name (`input 0`, `parameter weight`)."""
    import torch

    named = {f"input {index}": value for index, value in enumerate(inputs)}
    named |= {f"parameter {name}": value for name, value in state.items()}
    return {name: wire.digest(value) for name, value in named.items() if isinstance(value, torch.Tensor)}
