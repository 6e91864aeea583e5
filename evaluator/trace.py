"""Counts what a candidate's launches do at benchmark size, from a sample of their programs.

Inside the untrusted worker only. Float inputs are virtual memory that is never filled; a launch executes a few of its
programs in the interpreter, and long loops a few of their iterations, each standing for several (its weight). For every
buffer the trace knows how many bytes the whole grid asks for, how many distinct ones one program touches, and what
share of a wave's first touches are distinct (`sharing`: 1 when programs read different lines, 1/132 when 132 of them
read the same ones). What of that reaches DRAM depends on occupancy and cache size and is the cost model's business.

Assumptions: programs differ little from their sampled neighbours; iterations of a loop are alike; a wave is the first
132 programs in launch order; caches work in lines of 128 bytes and memory in sectors of 32 (CUDA C++ Best Practices
Guide, 10.2.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from evaluator.candidate_module import build_model, forward, load_candidate
from evaluator.interpreter_hooks import (
    Addresses,
    LaunchCall,
    Mask,
    extent,
    in_grid_order,
    observed,
    tensor_arguments,
)
from evaluator.op_counts import counted
from evaluator.samplers import probes, sample, spread
from evaluator.types import Frozen, Scalar

SECTOR = 32
LINE = 128
WAVE = 132
LARGE = 1 << 20
"""Buffers below this live in L2 however they are shared."""
MAX_ITERATIONS = 4
"""Iterations of one loop that are executed; each stands for its share of the trip count."""


class BufferTraffic(Frozen):
    """What one launch does with one tensor argument, in bytes over the whole grid unless said otherwise."""

    name: str
    nbytes: int
    """Extent of the tensor."""
    read_bytes: float
    """Requested in whole sectors."""
    write_bytes: float
    unique_read_bytes: float
    """Distinct line bytes that one program reads, averaged over programs."""
    unique_write_bytes: float
    sharing: float
    """Distinct lines / all lines of a wave's first touches, in (0, 1]."""
    atomic_bytes: float = 0.0


class LaunchTrace(Frozen):
    """One launch at benchmark size. Counts are totals over the grid unless said otherwise."""

    kernel: str
    grid: tuple[int, int, int]
    programs: int
    sampled: int
    constants: Mapping[str, Scalar | None]
    buffers: tuple[BufferTraffic, ...]
    ops: Mapping[str, float]
    """Elements computed by class: fma, alu, mufu, convert, reduce, compare …"""
    dot_flops: Mapping[str, float]
    """Multiply-adds times two on tensor cores, by input dtype."""
    dot_tile: tuple[int, int, int] | None
    """(M, N, K) of the largest `tl.dot`."""
    reads_per_program: float
    """Load operations of one program, averaged over programs."""
    rounds_per_program: float
    """Times one program waits for memory: loads of one iteration with nothing between them count once."""
    bytes_per_read: float
    """Bytes one load operation of one program asks for."""
    reductions_per_program: float
    """Reductions across lanes, each a chain of shuffles and a barrier."""


def trace_workload(
    source: str,
    init_args: Sequence[Any],
    inputs: Sequence[Any],
    state: Mapping[str, torch.Tensor],
    *,
    max_programs: int = 4,
) -> list[LaunchTrace]:
    """Every launch of one forward call at benchmark size, in launch order.

    `inputs` and `state` give float tensors on the meta device (shape, stride and dtype alone) and integer ones with
    their contents, which may be addresses. Raises what the candidate raises.
    """
    module = load_candidate(source)
    sampler = _Sampler(max_programs)
    with observed(sampler), sampler.loops_sampled(), counted(sampler.counts):
        model = build_model(module, init_args, state, _virtual)
        forward(model, [_virtual(value) if isinstance(value, torch.Tensor) else value for value in inputs])
    return sampler.traces


def _virtual(tensor: torch.Tensor) -> torch.Tensor:
    """Address space for a meta tensor: pages exist once something touches them."""
    if not tensor.is_meta:
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)


class Counts:
    """What the running programs add up; `weight` is how many iterations the current one stands for."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything, for the next launch."""
        self.weight = 1.0
        self.ops: dict[str, float] = {}
        self.dot_flops: dict[str, float] = {}
        self.dot_tile: tuple[int, int, int] | None = None
        self.reductions = 0.0
        self.waited = True
        """Whether something used loaded values since the last load, so that the next load is a new round."""

    def add(self, name: str, elements: int) -> None:
        """`elements` results of an operation of class `name`."""
        self.ops[name] = self.ops.get(name, 0.0) + elements * self.weight

    def dot(self, dtype: str, m: int, n: int, k: int) -> None:
        """One `tl.dot` of an m by k and a k by n tile."""
        self.waited = True
        self.dot_flops[dtype] = self.dot_flops.get(dtype, 0.0) + 2.0 * m * n * k * self.weight
        if self.dot_tile is None or m * n * k > np.prod(self.dot_tile):
            self.dot_tile = (m, n, k)

    def reduction(self, elements: int) -> None:
        """One reduction or scan over `elements` inputs."""
        self.waited = True
        self.add("reduce", elements)
        self.reductions += self.weight


class _Touches:
    """Lines one program touched, with the largest weight each was touched with, and what it asked for."""

    def __init__(self, buffers: int) -> None:
        self.requested: list[dict[str, float]] = [{} for _ in range(buffers)]
        self.lines: list[dict[str, list[tuple[Any, float]]]] = [{"read": [], "write": []} for _ in range(buffers)]
        self.reads = 0.0
        self.rounds = 0.0
        self.read_bytes = 0.0

    def unique_bytes(self, buffer: int, kind: str) -> float:
        """Distinct lines in bytes, a line of a sampled iteration standing for `weight` lines."""
        parts = self.lines[buffer][kind]
        if not parts:
            return 0.0
        lines = np.concatenate([lines for lines, _ in parts])
        weights = np.concatenate([np.full(len(lines), weight) for lines, weight in parts])
        order = np.argsort(lines, kind="stable")
        lines, weights = lines[order], weights[order]
        starts = np.flatnonzero(np.r_[True, lines[1:] != lines[:-1]])
        return float(np.maximum.reduceat(weights, starts).sum()) * LINE


class _Sampler:
    """Runs a sample of each launch."""

    def __init__(self, max_programs: int) -> None:
        self.traces: list[LaunchTrace] = []
        self.counts = Counts()
        self._max_programs = max_programs
        self._max_iterations = MAX_ITERATIONS
        self._starts = np.empty(0, dtype=np.uint64)
        self._ends = np.empty(0, dtype=np.uint64)
        self._touches: _Touches | None = None
        self._waving: list[dict[int, list[Any]]] | None = None
        self._program = 0

    def launch(self, call: LaunchCall) -> None:
        tensors = tensor_arguments(call.arguments)
        if call.programs == 0:
            return
        names = self._know(tensors)
        self.counts.reset()
        chosen = sample(call.grid, self._max_programs)
        programs = [self._full(call, place, len(names)) for place in chosen]
        sharing = self._sharing(call, len(names))
        self.traces.append(self._trace(call, names, tensors, programs, sharing))

    def _know(self, tensors: Mapping[str, torch.Tensor]) -> list[str]:
        extents = sorted((*extent(tensor), name) for name, tensor in tensors.items() if tensor.numel())
        self._starts = np.array([start for start, _, _ in extents], dtype=np.uint64)
        self._ends = np.array([end for _, end, _ in extents], dtype=np.uint64)
        return [name for _, _, name in extents]

    def _full(self, call: LaunchCall, place: tuple[int, int, int], buffers: int) -> _Touches:
        self._touches = _Touches(buffers)
        call.run({}, iter([place]))
        touches, self._touches = self._touches, None
        return touches

    def _sharing(self, call: LaunchCall, buffers: int) -> list[float]:
        """Per buffer: distinct lines / lines over a wave in which every program runs each loop once."""
        wave = min(call.programs, WAVE)
        few = probes(wave, call.grid[0])
        shares = self._first_touches(call, few, buffers)
        none, everything = 1.0, 1.0 / len(few)
        large = [share for share, size in zip(shares, self._ends - self._starts, strict=True) if size >= LARGE]
        if all(share == none or np.isclose(share, everything) for share in large):
            # Either every program has lines of its own or all touch the same ones; a whole wave does likewise.
            return [none if share == none else 1.0 / wave for share in shares]
        return self._first_touches(call, list(range(wave)), buffers)

    def _first_touches(self, call: LaunchCall, indices: list[int], buffers: int) -> list[float]:
        kept = (self.counts.ops.copy(), self.counts.dot_flops.copy(), self.counts.reductions)
        self._waving = [{} for _ in range(buffers)]
        self._max_iterations = 1
        call.run({}, self._one_after_another(call, indices))
        self._max_iterations = MAX_ITERATIONS
        touched, self._waving = self._waving, None
        self.counts.ops, self.counts.dot_flops, self.counts.reductions = kept
        return [_distinct_share(programs) for programs in touched]

    def _one_after_another(self, call: LaunchCall, indices: list[int]) -> Iterator[tuple[int, int, int]]:
        for self._program, place in zip(indices, in_grid_order(call.grid, indices), strict=True):
            yield place

    def access(self, kind: str, addresses: Addresses, mask: Mask, itemsize: int) -> Mask:
        if not len(self._starts):
            return np.zeros(addresses.shape, dtype=bool)
        owner = np.searchsorted(self._starts, addresses, side="right") - 1
        active = mask & (owner >= 0) & (addresses + np.uint64(itemsize) <= self._ends[np.maximum(owner, 0)])
        if active.any():
            self._count(kind, addresses[active], owner[active], itemsize)
        return active

    def _count(self, kind: str, addresses: Addresses, owner: Any, itemsize: int) -> None:
        direction = "read" if kind == "read" else "write"
        for buffer in [int(owner[0])] if owner[0] == owner[-1] and (owner == owner[0]).all() else np.unique(owner):
            # Relative to the buffer: CUDA's allocations begin on a line, the sample's need not.
            own = addresses[owner == buffer] - self._starts[buffer]
            self._touch(int(buffer), kind, direction, own, itemsize)
        if kind != "read":
            self.counts.waited = True
        elif self._touches is not None:
            self._touches.reads += self.counts.weight
            self._touches.read_bytes += len(addresses) * itemsize * self.counts.weight
            if self.counts.waited:
                self._touches.rounds += self.counts.weight
                self.counts.waited = False

    def _touch(self, buffer: int, kind: str, direction: str, own: Addresses, itemsize: int) -> None:
        lines = _blocks(own, itemsize, LINE)
        if self._waving is not None:
            self._waving[buffer].setdefault(self._program, []).append(lines)
            return
        assert self._touches is not None
        weighted = len(_blocks(own, itemsize, SECTOR)) * SECTOR * self.counts.weight
        requested = self._touches.requested[buffer]
        requested[direction] = requested.get(direction, 0.0) + weighted
        if kind == "atomic":
            requested["atomic"] = requested.get("atomic", 0.0) + weighted
        self._touches.lines[buffer][direction].append((lines, self.counts.weight))

    @contextmanager
    def loops_sampled(self) -> Iterator[None]:
        """`range` inside kernels yields a few of its values, each weighted by how many it stands for."""
        from triton.runtime import interpreter

        module = load_module_globals()
        saved = module.get("range", None)
        module["range"] = self._range
        interpreter.range = self._range
        try:
            yield
        finally:
            del interpreter.range
            if saved is None:
                module.pop("range", None)
            else:
                module["range"] = saved

    def _range(self, *bounds: Any) -> Iterator[int]:
        whole = range(*[int(bound) for bound in bounds])
        if (self._touches is None and self._waving is None) or len(whole) <= self._max_iterations:
            for value in whole:
                self.counts.waited = True
                yield value
            return
        before = self.counts.weight
        chosen = spread(len(whole), self._max_iterations)
        self.counts.weight = before * len(whole) / len(chosen)
        try:
            for index in chosen:
                self.counts.waited = True
                yield whole[index]
        finally:
            self.counts.weight = before

    def _trace(
        self,
        call: LaunchCall,
        names: list[str],
        tensors: Mapping[str, torch.Tensor],
        programs: list[_Touches],
        sharing: list[float],
    ) -> LaunchTrace:
        scale = call.programs / len(programs)
        reads = sum(touches.reads for touches in programs)
        return LaunchTrace(
            kernel=call.kernel,
            grid=call.grid,
            programs=call.programs,
            sampled=len(programs),
            constants={name: _plain(call.arguments[name]) for name in call.constexprs if name in call.arguments},
            buffers=tuple(
                _traffic(name, tensors[name], index, programs, scale, sharing[index])
                for index, name in enumerate(names)
            ),
            ops={name: value * scale for name, value in sorted(self.counts.ops.items())},
            dot_flops={name: value * scale for name, value in sorted(self.counts.dot_flops.items())},
            dot_tile=self.counts.dot_tile,
            reads_per_program=reads / len(programs),
            rounds_per_program=sum(touches.rounds for touches in programs) / len(programs),
            bytes_per_read=sum(touches.read_bytes for touches in programs) / reads if reads else 0.0,
            reductions_per_program=self.counts.reductions / len(programs),
        )


def _traffic(
    name: str, tensor: torch.Tensor, index: int, programs: list[_Touches], scale: float, sharing: float
) -> BufferTraffic:
    start, end = extent(tensor)
    mean = 1.0 / len(programs)
    return BufferTraffic(
        name=name,
        nbytes=end - start,
        read_bytes=sum(touches.requested[index].get("read", 0.0) for touches in programs) * scale,
        write_bytes=sum(touches.requested[index].get("write", 0.0) for touches in programs) * scale,
        unique_read_bytes=sum(touches.unique_bytes(index, "read") for touches in programs) * mean,
        unique_write_bytes=sum(touches.unique_bytes(index, "write") for touches in programs) * mean,
        sharing=sharing,
        atomic_bytes=sum(touches.requested[index].get("atomic", 0.0) for touches in programs) * scale,
    )


def _blocks(offsets: Addresses, itemsize: int, size: int) -> Addresses:
    """Distinct blocks of `size` bytes under the lanes' offsets."""
    if (
        len(offsets) > 1
        and offsets[-1] - offsets[0] == (len(offsets) - 1) * itemsize
        and (offsets[1:] > offsets[:-1]).all()
    ):
        return np.arange(offsets[0] // size, offsets[-1] // size + 1, dtype=np.uint64)
    return np.unique(offsets // np.uint64(size))


def _distinct_share(programs: Mapping[int, list[Any]]) -> float:
    """Distinct lines over all lines, each program's own repetitions counted once."""
    per_program = [np.unique(np.concatenate(parts)) for parts in programs.values()]
    if not per_program:
        return 1.0
    lines = np.concatenate(per_program)
    return len(np.unique(lines)) / len(lines)


def _plain(value: Any) -> Scalar | None:
    held = getattr(value, "value", value)
    return held if isinstance(held, bool | int | float | str) or held is None else str(held)


def load_module_globals() -> dict[str, Any]:
    """Globals of the loaded candidate."""
    import sys

    return sys.modules["candidate"].__dict__
