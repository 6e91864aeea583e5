"""Loads a candidate's file as a module and builds its `ModelNew`; inside the untrusted worker only."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

FILE_NAME = "candidate.py"
"""Every worker calls its candidate so; error messages cite lines of it."""


@lru_cache(maxsize=1)
def load_candidate(source: str) -> ModuleType:
    """Execute a source as a module, once per process. Triton reads kernels with `inspect`, so it needs a real file.

    Whatever the source raises comes out unchanged, with the candidate's own lines in its traceback.
    """
    place = Path(tempfile.mkdtemp(prefix="candidate-")) / FILE_NAME
    place.write_text(source, encoding="utf-8", errors="surrogatepass")
    spec = importlib.util.spec_from_file_location("candidate", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module  # dataclasses and pickling inside the candidate look it up
    spec.loader.exec_module(module)
    return module


def build_model(
    module: ModuleType,
    init_args: Sequence[Any],
    state: Mapping[str, torch.Tensor],
    place: Callable[[torch.Tensor], torch.Tensor],
) -> Any:
    """`ModelNew(*init_args)` with the reference's parameters and buffers wherever name and shape agree.

    The model stays in the mode that its constructor leaves it in, as the reference does (`evaluator.reference`).
    `place` turns a tensor of `state` into the one to use (a copy, a meta tensor, virtual memory). Parameters the
    reference does not have keep what the constructor gave them, moved by `place` as well.
    """
    import torch

    model = module.ModelNew(*init_args)
    if not isinstance(model, torch.nn.Module):
        return model
    with torch.no_grad():
        for owner in model.modules():
            for kind in (owner._parameters, owner._buffers):
                _replace(model, owner, kind, state, place)
    return model


def build_model_on(device: str, module: ModuleType, init_args: Sequence[Any], state: Mapping[str, torch.Tensor]) -> Any:
    """`build_model` on a device. Tensors of `state` that lie there already are used in place."""
    import torch

    with torch.device(device):
        return build_model(module, init_args, state, lambda held: held.to(device))


def _replace(
    model: Any,
    owner: Any,
    kind: dict[str, Any],
    state: Mapping[str, torch.Tensor],
    place: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    import torch

    names = {id(module): prefix for prefix, module in model.named_modules()}
    for name, held in kind.items():
        if held is None:
            continue
        prefix = names[id(owner)]
        given = state.get(f"{prefix}.{name}" if prefix else name)
        tensor = place(given if given is not None and given.shape == held.shape else held.detach())
        kind[name] = torch.nn.Parameter(tensor, requires_grad=False) if isinstance(held, torch.nn.Parameter) else tensor


def forward(model: Any, inputs: Sequence[Any]) -> Any:
    """One call without gradients."""
    import torch

    with torch.no_grad():
        return model(*inputs)
