"""Running a task's reference (trusted side): in its own dtype, and in float64 for what its own errors are.

A reference stays in the mode that its constructor leaves it in (training, unless it calls `eval()` itself), as
KernelBench and robust-kbench run theirs; so does a candidate. Nothing here changes the model that it is given.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from evaluator.correctness import flatten

if TYPE_CHECKING:
    import torch


def run_reference(model: Any, inputs: list[Any]) -> list[Any]:
    """Flattened outputs of a copy of the reference on copies of the inputs.

    Raises TypeError for outputs that are no tensors.
    """
    return run_and_watch(model, inputs)[0]


def run_and_watch(model: Any, inputs: list[Any]) -> tuple[list[Any], frozenset[str]]:
    """`run_reference`, and the names of the buffers that the call changed, such as batch normalisation's statistics."""
    import torch

    before = dict(model.named_buffers())
    model = copy.deepcopy(model)
    with torch.no_grad():
        given = copy.deepcopy(inputs)
        outputs = flatten(model(*given))
    for output in outputs:
        if not isinstance(output, torch.Tensor):
            raise TypeError(f"the reference returned a {type(output).__name__}, expected tensors")
    # Copied where somebody else holds the memory too: an input's copy, a parameter, another output.
    held = [tensor for tensor in (*given, *model.parameters(), *model.buffers()) if isinstance(tensor, torch.Tensor)]
    taken = {tensor.untyped_storage().data_ptr() for tensor in held}
    kept: list[Any] = []
    for output in [output for output in outputs if isinstance(output, torch.Tensor)]:
        place = output.untyped_storage().data_ptr()
        kept.append(output.detach().clone() if place in taken or output._is_view() else output.detach())
        taken.add(place)
    after = dict(model.named_buffers())
    return kept, frozenset(name for name, held in before.items() if not _same(held, after.get(name)))


def _same(before: torch.Tensor, after: torch.Tensor | None) -> bool:
    import torch

    return after is not None and torch.equal(before, after)


def exact_outputs(model: Any, inputs: list[Any], expected: list[Any]) -> list[Any] | None:
    """The float64 reference's outputs, or None where it cannot be upcast."""
    import torch

    try:
        with in_float64():
            wide = [floats_changed(value, torch.Tensor.double) for value in inputs]
            outputs = run_reference(copy.deepcopy(model).double(), wide)
    except Exception:  # a reference that insists on its dtype; the tolerance still judges
        return None
    usable = len(outputs) == len(expected) and all(
        got.dtype == torch.float64 or not want.is_floating_point() for got, want in zip(outputs, expected, strict=True)
    )
    return outputs if usable else None


def floats_changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """`change(value)` for a float tensor, anything else as it is."""
    import torch

    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return change(value)
    return value


def is_finite(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds no NaN and no inf."""
    return not tensor.is_floating_point() or bool(tensor.isfinite().all())


@contextmanager
def in_float64() -> Iterator[None]:
    """Conversions to a narrower float inside the reference become conversions to float64."""
    import torch
    from torch.overrides import TorchFunctionMode

    narrow = {torch.float32, torch.float16, torch.bfloat16}
    shorthands = {torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16}

    def widened(value: Any) -> Any:
        return torch.float64 if isinstance(value, torch.dtype) and value in narrow else value

    class Widen(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in shorthands:
                return torch.Tensor.double(args[0])
            named = {name: widened(value) for name, value in (kwargs or {}).items()}
            return func(*[widened(value) for value in args], **named)

    with Widen():
        yield
