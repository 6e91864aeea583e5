"""Poison and red zones around what a candidate allocates itself; inside the untrusted worker only.

While a guard is active, uninitialised allocations (`torch.empty` and its kin) are filled with a poison, so that two
runs with different poisons tell unwritten outputs, and lie between two zones of known bytes, so that writes past their
ends are seen afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from evaluator.gpu_memory import ALIGNMENT, REDZONE
from evaluator.interpret import ALLOCATIONS, ZONE_BYTE, fill

MAX_GUARDED = 256


class Guard:
    """The zones of one run."""

    def __init__(self) -> None:
        self._made: list[tuple[torch.Tensor, int, int, str]] = []

    def surround(self, made: torch.Tensor) -> torch.Tensor:
        """A tensor like `made` (uninitialised) with zones on both sides; `made` itself when there are too many."""
        size = _extent(made)
        if len(self._made) >= MAX_GUARDED or made.layout != torch.strided:
            return made
        room = REDZONE + -(-size // ALIGNMENT) * ALIGNMENT + REDZONE
        flat = torch.full((room,), ZONE_BYTE, dtype=torch.uint8, device=made.device)
        self._made.append((flat, REDZONE, REDZONE + size, str(tuple(made.shape))))
        inner = flat[REDZONE : REDZONE + max(size, made.element_size())].view(made.dtype)
        return inner.as_strided(made.shape, made.stride(), inner.storage_offset())

    def damaged(self) -> list[str]:
        """Which allocations had their zones written to."""
        return [
            f"a tensor of shape {shape} that forward allocates"
            for flat, begin, end, shape in self._made
            if bool((flat[:begin] != ZONE_BYTE).any()) or bool((flat[end:] != ZONE_BYTE).any())
        ]


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's base class is not annotated
    """Fills, and surrounds where there is a guard."""

    def __init__(self, guard: Guard | None, value: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._guard, self._value = guard, value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func.overloadpacket not in ALLOCATIONS or not isinstance(made, torch.Tensor) or made.is_meta:
            return made
        if self._guard is not None:
            made = self._guard.surround(made)
        fill(made, self._value)
        return made


@contextmanager
def poisoned(guard: Guard | None, value: float | None) -> Iterator[None]:
    """Inside, uninitialised allocations hold `value`; None leaves them as they are."""
    if value is None:
        yield
        return
    with _Mode(guard, value):
        yield


def _extent(tensor: torch.Tensor) -> int:
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()
