"""Runs a candidate on a small shape in Triton's interpreter, with red zones around every buffer.

Inside the untrusted worker only. Each launch works on copies of its tensors' storages, laid out in arenas with
poisoned zones on both sides. Every load, store and atomic is checked lane by lane against the extents of the tensors
this launch was given: an access outside all of them is recorded with its place and then masked off, so that it can
neither crash the worker nor pass unseen. The zones are checked again after the launch.

What this cannot show: races (programs run one after another), and anything the interpreter does not run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from evaluator.candidate_module import build_model, forward, load_candidate
from evaluator.interpreter_hooks import (
    Addresses,
    LaunchCall,
    Mask,
    candidate_line,
    extent,
    in_grid_order,
    observed,
    tensor_arguments,
)

ALIGNMENT = 256
"""CUDA's allocator aligns so; kernels may count on 16 of it."""
ZONE_BYTE = 0xFF
"""Fills red zones: NaN in every float format, -1 as an integer."""
MAX_FINDINGS = 8


@dataclass(frozen=True)
class OutOfBounds:
    """The first out-of-bounds lane of one access, and how many more there were."""

    kernel: str
    kind: str
    argument: str
    elements: int
    """Distance in elements: behind the end when positive, before the start when negative."""
    lanes: int
    program: tuple[int, int, int]
    line: int | None

    def __str__(self) -> str:
        side = "behind the end" if self.elements > 0 else "before the start"
        where = f"{abs(self.elements)} elements {side}"
        verb = {"read": "reads", "write": "writes"}.get(self.kind, "updates")
        line = f" (candidate.py:{self.line})" if self.line else ""
        return f"{self.kernel} {verb} {where} of {self.argument} in program {self.program}, {self.lanes} lanes{line}"


@dataclass(frozen=True)
class InterpretResult:
    """What one forward call gave."""

    outputs: list[object]
    """The returned value, or the items of a returned tuple, list or dict."""
    out_of_bounds: tuple[OutOfBounds, ...]
    kernels: tuple[str, ...]
    """Kernels launched, in order of their first launch."""


def run_small(
    source: str,
    init_args: Sequence[Any],
    state: Mapping[str, torch.Tensor],
    inputs: Sequence[Any],
    *,
    redzone_bytes: int = 4096,
    poison: float | None = None,
) -> InterpretResult:
    """One forward call on CPU tensors, which are used as they are (the caller hashes them to see changes).

    `poison` fills what `torch.empty` and its kin return, so that two runs with different poisons tell whether an
    output was left unwritten. Exceptions of the candidate come out with its own line in the traceback;
    `UnsupportedError` where the interpreter lacks a feature.
    """
    from evaluator.correctness import flatten

    module = load_candidate(source)
    watch = _Watch(redzone_bytes)
    with observed(watch), poisoned_allocations(poison):
        model = build_model(module, init_args, state, lambda tensor: tensor)
        outputs = forward(model, inputs)
    return InterpretResult(list(flatten(outputs)), tuple(watch.findings), tuple(watch.kernels))


class _Watch:
    """Runs whole grids on arenas and notes what leaves them."""

    def __init__(self, redzone_bytes: int) -> None:
        self.findings: list[OutOfBounds] = []
        self.kernels: dict[str, None] = {}
        self._redzone = redzone_bytes
        self._names: list[str] = []
        self._starts = np.empty(0, dtype=np.uint64)
        self._ends = np.empty(0, dtype=np.uint64)
        self._call: LaunchCall | None = None

    def launch(self, call: LaunchCall) -> None:
        self.kernels[call.kernel] = None
        given = tensor_arguments(call.arguments)
        arenas: dict[int, _Arena] = {}
        copies: dict[str, torch.Tensor] = {}
        for name, tensor in given.items():
            storage = tensor.untyped_storage()
            arena = arenas.setdefault(storage.data_ptr(), _Arena(storage, self._redzone))
            copies[name] = arena.view_of(tensor)
        self._know(copies)
        self._call = call
        call.run(copies, in_grid_order(call.grid, range(call.programs)))
        for arena in arenas.values():
            arena.copy_back()
        for name, tensor in given.items():
            if arenas[tensor.untyped_storage().data_ptr()].zone_changed:
                self._note("write", name, 1, 1, None)

    def _know(self, tensors: Mapping[str, torch.Tensor]) -> None:
        extents = sorted((*extent(tensor), name) for name, tensor in tensors.items() if tensor.numel())
        self._names = [name for _, _, name in extents]
        self._starts = np.array([start for start, _, _ in extents], dtype=np.uint64)
        # Views of one storage may nest; an address is inside when any extent that starts before it reaches past it.
        ends = np.array([end for _, end, _ in extents], dtype=np.uint64)
        self._ends = np.maximum.accumulate(ends) if len(ends) else ends

    def access(self, kind: str, addresses: Addresses, mask: Mask, itemsize: int) -> Mask:
        inside = self._inside(addresses, itemsize)
        bad = mask & ~inside
        if bad.any():
            self._record(kind, addresses[bad], itemsize)
        return mask & inside

    def _inside(self, addresses: Addresses, itemsize: int) -> Mask:
        if not len(self._starts):
            return np.zeros(addresses.shape, dtype=bool)
        owner = np.searchsorted(self._starts, addresses, side="right") - 1
        reach = self._ends[np.maximum(owner, 0)]
        return (owner >= 0) & (addresses + np.uint64(itemsize) <= reach)

    def _record(self, kind: str, addresses: Addresses, itemsize: int) -> None:
        first = int(addresses.reshape(-1)[0])
        if not self._names:
            self._note(kind, "any tensor", 1, addresses.size, candidate_line())
            return
        distances = [
            (first + itemsize - int(end) if first >= int(start) else first - int(start), name)
            for start, end, name in zip(self._starts, self._ends, self._names, strict=True)
        ]
        distance, name = min(distances, key=lambda pair: abs(pair[0]))
        self._note(kind, name, _elements(distance, itemsize), addresses.size, candidate_line())

    def _note(self, kind: str, argument: str, elements: int, lanes: int, line: int | None) -> None:
        from triton.runtime.interpreter import interpreter_builder

        assert self._call is not None
        known = {(found.kernel, found.kind, found.argument, found.line) for found in self.findings}
        if len(self.findings) < MAX_FINDINGS and (self._call.kernel, kind, argument, line) not in known:
            program = tuple(int(part) for part in interpreter_builder.grid_idx)
            self.findings.append(OutOfBounds(self._call.kernel, kind, argument, elements, lanes, program, line))  # type: ignore[arg-type]


def _elements(distance: int, itemsize: int) -> int:
    whole = max(1, abs(distance) // itemsize)
    return whole if distance > 0 else -whole


class _Arena:
    """One storage's copy between two red zones."""

    def __init__(self, storage: torch.UntypedStorage, redzone: int) -> None:
        self._storage = storage
        self._size = storage.nbytes()
        room = self._size + 2 * redzone + ALIGNMENT
        self._bytes = torch.full((room,), ZONE_BYTE, dtype=torch.uint8)
        start = self._bytes.data_ptr() + redzone
        # The copy keeps the original's alignment, so that a kernel sees the pointers it was given.
        self._first = redzone + (storage.data_ptr() - start) % ALIGNMENT
        self._inner = self._bytes[self._first : self._first + self._size]
        self._original = torch.empty(0, dtype=torch.uint8).set_(storage)
        self._inner.copy_(self._original)

    def view_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """`tensor`'s view, on the copy."""
        begin = self._first + tensor.storage_offset() * tensor.element_size()
        shift = torch.empty(0, dtype=tensor.dtype)
        # set_ counts in elements, so the arena is cut where an element begins.
        aligned = self._bytes[begin % tensor.element_size() :]
        base = aligned[: len(aligned) // tensor.element_size() * tensor.element_size()].view(tensor.dtype)
        offset = base.storage_offset() + begin // tensor.element_size()
        return shift.set_(base.untyped_storage(), offset, tensor.size(), tensor.stride())

    @property
    def zone_changed(self) -> bool:
        """Whether anything was written outside of the copy."""
        before, after = self._bytes[: self._first], self._bytes[self._first + self._size :]
        return bool((before != ZONE_BYTE).any() or (after != ZONE_BYTE).any())

    def copy_back(self) -> None:
        """Write the copy's bytes into the original."""
        self._original.copy_(self._inner)


class _Poison(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's base class is not annotated
    """Fills uninitialised allocations."""

    def __init__(self, value: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._value = value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func.overloadpacket in ALLOCATIONS and isinstance(made, torch.Tensor):
            fill(made, self._value)
        return made


ALLOCATIONS = {
    torch.ops.aten.empty,
    torch.ops.aten.empty_like,
    torch.ops.aten.empty_strided,
    torch.ops.aten.new_empty,
    torch.ops.aten.new_empty_strided,
}


def fill(tensor: torch.Tensor, value: float) -> None:
    """Fill floats with `value` (at most the dtype's largest), integers with -1 for NaN and 1 otherwise."""
    if tensor.is_floating_point():
        tensor.fill_(value if np.isnan(value) else min(value, torch.finfo(tensor.dtype).max))
    elif tensor.dtype != torch.bool:
        tensor.fill_(-1 if np.isnan(value) else 1)


@contextmanager
def poisoned_allocations(value: float | None) -> Iterator[None]:
    """Inside, what `torch.empty` and its kin return is filled with `value` (integers with -1 or 1); None: untouched."""
    if value is None:
        yield
        return
    with _Poison(value):
        yield
