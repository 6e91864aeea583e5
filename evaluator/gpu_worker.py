"""The untrusted side of the gpu evaluator: one process, one candidate, commands from the judge.

Forked ahead of time (`evaluator.zygote`), so that torch, triton and the device's context are there before a candidate
is. Every command is one wire frame and gets one frame back. The process holds inputs (views into the judge's arena)
and whatever the candidate makes of them; references, expected outputs, seeds and verdicts are never in it. The
baseline runs in such a process too, with a `Model` in place of a `ModelNew`.

What a candidate could forge in here are its own samples and reports; the judge compares outputs with values that are
not here, keeps a clock of its own and asks for outputs of calls it chooses after they were made.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator import gpu_walls, kept_memory, wire
from evaluator.candidate_module import build_model_on, forward, load_candidate
from evaluator.gpu_guard import Guard, poisoned
from evaluator.gpu_memory import Arena, Place, view
from evaluator.gpu_platform import PLATFORMS, Platform, ProfilerStoppedError
from evaluator.timing import run_block, run_unflushed
from evaluator.worker import WARM_UP, describe, plain_output, receive

_LARGE = 1 << 30
"""Bytes of output beyond which only the last one is kept."""


class Session:
    """The candidate's model, its inputs and what it returned; one method per command."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._timer = platform.timer
        self._arena: Arena | None = None
        self._module: Any = None
        self._mode = "eager"
        self._built: dict[str, _Built] = {}
        self._kept: list[Any] = []
        self._given: list[Any] = []
        self._own: Collection[int] = ()
        self._constant: set[int] = set()
        self._prints = _fingerprints()
        self._harness = [
            part.name for part in platform.profiled(lambda: run_block(self._timer, lambda index: None, 1, 0, 1e-6))
        ]

    def ping(self) -> None:
        """Nothing: what a message takes."""

    def arena(self, token: dict[str, Any], memory_bytes: int | None = None) -> None:
        """Map the judge's memory, and take no more than `memory_bytes` beside it."""
        self._arena = self._platform.open(token)
        if memory_bytes is not None:
            self._platform.limit_memory(memory_bytes)

    def load(self, source: str) -> None:
        """Import the candidate."""
        self._own = kept_memory.allocations(self._platform.device)
        self._module = load_candidate(source)

    def load_reference(self, source: str, mode: str) -> None:
        """Import a reference (the baseline's process only); `mode` is `eager` or a mode of torch.compile."""
        self._module = _Made(load_candidate(source).Model)
        self._mode = mode

    def build(self, name: str, init_args: list[Any], state: dict[str, Any], sets: list[list[Any]]) -> None:
        """The model of workload `name`, with parameters and input sets in the arena."""
        import torch

        self._kept = []
        placed = {key: self._at(place) for key, place in state.items()}
        model = build_model_on(self._platform.device, self._module, init_args, placed)
        if self._mode != "eager":
            model = torch.compile(model, mode=None if self._mode == "default" else self._mode, dynamic=False)
        self._built[name] = _Built(model, [[self._at(value) for value in values] for values in sets])

    def drop(self, name: str) -> None:
        """Forget a workload."""
        self._kept = []
        self._built.pop(name, None)

    def run(
        self, name: str, number: int, sinks: list[list[dict[str, Any]]], poison: float | None = None
    ) -> dict[str, Any]:
        """One forward on set `number`. The outputs go into the first sinks in stream order, into the second ones after
        the whole device has come to rest."""
        before = [value for kept in self._kept for value in _pointers(kept)]
        guard = Guard() if poison is not None else None
        with self._platform.launches() as launches, poisoned(guard, poison):
            outputs = self._built[name].call(number)
        shown = self._copy(outputs, sinks[0])
        self._timer.synchronize()
        if len(sinks) > 1:
            self._copy(outputs, sinks[1])
            self._timer.synchronize()
        pointers = _pointers(outputs)
        # Two outputs at most stay alive, so that a third one at the place of either is no accident.
        self._kept = [*(self._kept[-1:] if _nbytes(outputs) < _LARGE else []), outputs]
        return {
            "outputs": shown,
            "launches": [launch.kernel for launch in launches],
            "seen_before": bool(set(pointers) & set(before)),
            "written_outside": guard.damaged() if guard else [],
        }

    def ablate(self, name: str, number: int, sink: list[dict[str, Any]]) -> dict[str, Any]:
        """One forward with every Triton launch left out, on freshly poisoned memory."""
        self._given = []
        with self._platform.stubbed(self._given), poisoned(None, 1e30):
            outputs = self._built[name].call(number)
        shown = self._copy(outputs, sink)
        self._timer.synchronize()
        return {"outputs": shown}

    def given(self) -> list[int]:
        """Elements of each tensor of the candidate's own that the launches of `ablate` were given: torch made them."""
        lowest = self._arena.bytes.data_ptr() if self._arena is not None else 0
        highest = lowest + (self._arena.bytes.numel() if self._arena is not None else 0)
        own = [value for value in self._given if not lowest <= value.data_ptr() < highest]
        self._given = list({(value.data_ptr(), value.numel(), value.dtype): value for value in own}.values())
        return [value.numel() for value in self._given]

    def show_given(self, index: int, place: dict[str, Any]) -> None:
        """Copy one of them to `place`, which has as many elements."""
        assert self._arena is not None
        at = view(self._arena, Place.model_validate(place))
        at.copy_(self._given[index].detach().reshape(at.shape))
        self._timer.synchronize()

    def keeps(self, name: str, sets: list[int], count: int, least: int) -> dict[str, Any]:
        """How many blocks of at least `least` bytes outlive calls, with other contents after `count` calls on each
        of two sets of inputs."""
        self._kept = []
        self._built[name].call(sets[0])
        self._timer.synchronize()
        if not self._outliving(least):
            return {"changed": 0}
        seen: list[kept_memory.Sums] = []
        for number in sets:
            for _ in range(count):
                self._built[name].call(number)
            self._timer.synchronize()
            seen.append(kept_memory.contents(self._outliving(least), self._platform.device))
        self._constant = {address for address, sums in seen[1].items() if seen[0].get(address) == sums}
        return {"changed": len(seen[1]) - len(self._constant)}

    def recall(self, name: str, number: int, count: int, keep: int, least: int) -> None:
        """`count` calls on one set of inputs, then as many on overwritten memory; the last `keep` of their outputs
        stay for `output`."""
        self._kept = []
        built = self._built[name]
        for _ in range(count):
            built.call(number)
        for _ in range(count):
            blocks = self._outliving(least)
            answers = {pointer for kept in self._kept for pointer in _pointers(kept)}
            kept_memory.overwrite(set(blocks) - self._constant - answers, blocks, self._platform.device)
            self._kept = [*self._kept[-(keep - 1) :], built.call(number)]
        self._timer.synchronize()

    def _outliving(self, least: int) -> kept_memory.Blocks:
        """The candidate's blocks that are alive now."""
        found = kept_memory.allocations(self._platform.device)
        return {address: size for address, size in found.items() if size >= least and address not in self._own}

    def block(self, name: str, count: int, first: int, lead_s: float, keep_outputs: bool = True) -> dict[str, Any]:
        """`count` timed calls on the ring of input sets; their outputs are kept until the next command."""
        self._kept = []
        built, keep = self._built[name], self._kept.append if keep_outputs else lambda outputs: None
        done = run_block(self._timer, lambda index: keep(built.call(index)), count, first, lead_s)
        return done.model_dump(mode="json")

    def output(self, index: int, sink: list[dict[str, Any]]) -> dict[str, Any]:
        """What the `index`-th call of the last block returned."""
        shown = self._copy(self._kept[index], sink)
        self._timer.synchronize()
        pointers = [_pointers(kept) for kept in self._kept]
        shared = any(set(pointers[index]) & set(other) for at, other in enumerate(pointers) if at != index)
        return {"outputs": shown, "seen_before": shared}

    def loop(self, name: str, count: int) -> dict[str, Any]:
        """`count` calls back to back, then the device at rest: what the judge's own clock measures."""
        self._kept = []
        return run_unflushed(self._timer, self._built[name].call, count).model_dump(mode="json")

    def profile(self, name: str, count: int, first: int, lead_s: float) -> dict[str, Any]:
        """Work on the device during a block like every other timed one, and the launches among it."""
        self._kept = []
        built, keep = self._built[name], self._kept.append
        try:
            with self._platform.launches() as launches:
                work = self._platform.profiled(
                    lambda: run_block(self._timer, lambda index: keep(built.call(index)), count, first, lead_s)
                )
        except ProfilerStoppedError:
            return {"stopped": True}
        for harness in self._harness:
            # As many as the harness itself queues; a candidate's own work of that name stays.
            for part in [part for part in work if part.name == harness][:count]:
                work.remove(part)
        return {
            "work": [[part.name, part.begin_ms, part.ms] for part in work],
            "launches": [[launch.kernel, launch.symbol] for launch in launches],
        }

    def inspect(self) -> dict[str, Any]:
        """What a candidate should not have changed."""
        now = _fingerprints()
        changed = [name for name, print_ in self._prints.items() if now.get(name) != print_]
        return {"changed": changed, "memory_bytes": self._timer.memory_used()}

    def _at(self, value: Any) -> Any:
        if isinstance(value, dict) and "offset" in value:
            assert self._arena is not None
            return view(self._arena, Place.model_validate(value))
        return value

    def _copy(self, outputs: Any, sink: list[dict[str, Any]]) -> list[Any]:
        """Copy what fits where it belongs; say of each output what it is."""
        from evaluator.correctness import flatten

        shown: list[Any] = []
        for index, output in enumerate(flatten(outputs)):
            kept = plain_output(output)
            if isinstance(kept, str):
                shown.append(kept)
                continue
            place = Place.model_validate(sink[index]) if index < len(sink) else None
            dtype = str(kept.dtype).removeprefix("torch.")
            fits = place is not None and tuple(kept.shape) == place.shape and dtype == place.dtype
            if place is not None and fits and kept.device.type == self._platform.device:
                assert self._arena is not None
                view(self._arena, place).copy_(kept)
            described = {"shape": list(kept.shape), "stride": list(kept.stride()), "dtype": dtype}
            shown.append({**described, "device": kept.device.type})
        return shown


@dataclass(frozen=True)
class _Built:
    """A model and its ring of input sets."""

    model: Any
    sets: list[list[Any]]

    def call(self, index: int) -> Any:
        """One forward on a set of the ring."""
        return forward(self.model, self.sets[index % len(self.sets)])


class _Made:
    """Stands for a candidate's module where the model is a reference."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.ModelNew = make


def _pointers(outputs: Any) -> list[int]:
    import torch

    from evaluator.correctness import flatten

    leaves = [leaf for leaf in flatten(outputs) if type(leaf) is torch.Tensor and leaf.numel()]
    return [leaf.untyped_storage().data_ptr() for leaf in leaves]


def _nbytes(outputs: Any) -> int:
    import torch

    from evaluator.correctness import flatten

    return sum(leaf.numel() * leaf.element_size() for leaf in flatten(outputs) if type(leaf) is torch.Tensor)


def _fingerprints() -> dict[str, int]:
    """Identities of what can be called in the modules and classes that measuring and comparing rely on."""
    import torch
    from triton.runtime import autotuner, jit

    owners: dict[str, Any] = {
        "torch": torch,
        "torch.Tensor": torch.Tensor,
        "torch.cuda": torch.cuda,
        "torch.cuda.Event": torch.cuda.Event,
        "torch.cuda.Stream": torch.cuda.Stream,
        "torch.nn.Module": torch.nn.Module,
        "torch.nn.functional": torch.nn.functional,
        "torch.profiler.profile": torch.profiler.profile,
        "torch.autograd.profiler.profile": torch.autograd.profiler.profile,
        "JITFunction": jit.JITFunction,
        "Autotuner": autotuner.Autotuner,
        "time": time,
    }
    return {
        f"{label}.{name}": id(value)
        for label, owner in owners.items()
        for name, value in vars(owner).items()
        if callable(value) or isinstance(value, staticmethod | classmethod | property)
    }


def preload() -> None:
    """Import what every worker needs, in the process that they are forked from; no device is touched."""
    import torch._dynamo
    import torch.profiler  # noqa: F401
    import triton.compiler
    import triton.runtime.driver  # noqa: F401

    import evaluator.device
    import evaluator.interpret  # noqa: F401


def main(descriptor: int, platform: str, confined: bool, slot: int, host_bytes: int) -> None:
    """Wait for the judge's word, warm up, confine this process, then serve commands until the socket closes.

    Warming up uses the device, which may be somebody else's to time on at that moment.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    receive(channel)
    import torch

    torch.set_num_threads(1)
    found = PLATFORMS[platform]()
    warm_up(found)
    session = Session(found)
    walls = gpu_walls.enter(Path.cwd(), slot, found.writable, host_bytes) if confined else {}
    channel.sendall(wire.dump({"walls": walls}))
    serve(channel, session, found.timer.synchronize)


def serve(channel: socket.socket, session: object, settle: Callable[[], None] = lambda: None) -> None:
    """Answer commands by the session's methods; the process ends with the channel.

    `settle` waits for the device before every answer, good or bad: with the answer the judge may let somebody else
    time there.
    """
    while True:
        request = wire.load(receive(channel))
        nonce = request.pop("nonce")
        command = request.pop("command")
        try:
            try:
                answer = {"nonce": nonce, "result": getattr(session, command)(**request)}
            finally:
                settle()
        except BaseException as error:
            answer = {"nonce": nonce, "error": describe(error)}
        channel.sendall(wire.dump(answer))


def warm_up(platform: Platform) -> None:
    """What is slow the first time: the context, a compilation, helper modules; a session begins with a profile."""
    import torch

    module = load_candidate(WARM_UP)
    model = module.ModelNew()
    inputs = [torch.zeros(20, device=platform.device)]
    forward(model, inputs)
    run_block(platform.timer, lambda index: forward(model, inputs), 2, 0)
    platform.timer.synchronize()
    load_candidate.cache_clear()
    sys.modules.pop("candidate", None)
