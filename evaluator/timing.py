"""Taking samples: blocks of calls in the worker, candidate and baseline in turn under the judge's control.

The worker times blocks of calls with a cold L2 (`run_block`) and loops of calls back to back for the judge's own
clock (`run_unflushed`). The judge asks for blocks until a tier's rule says that it has enough (`interleave`), checks
them (`evaluator.samples`), makes numbers of them (`evaluator.summary`) and compares clocks (`evaluator.clocks`).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

from pydantic import Field

from evaluator.device import Device
from evaluator.samples import Block, Loop, Samples
from evaluator.summary import relative_spread
from evaluator.types import Frozen

Runner = Callable[[int, int], Block]
"""`runner(count, first)`: a block of `count` samples, the first of them call number `first` of this model."""


def run_block(device: Device, call: Callable[[int], object], count: int, first: int, lead_s: float = 0.0) -> Block:
    """Time `call(first)` to `call(first + count - 1)`, flushing L2 before each.

    The host does not wait between calls: while the device flushes and then idles for `lead_s`, the host launches the
    call behind it, so that the cost of launching shows only where it is longer than that. Raises what `call` raises.
    """
    stamp, flush, idle, now = device.stamp, device.flush_l2, device.idle, device.now
    stamps: list[tuple[object, object, object]] = []
    calls: list[float] = []
    started = now()
    for index in range(first, first + count):
        before = stamp()
        flush()
        idle(lead_s)
        begin = stamp()
        called = now()
        call(index)
        calls.append(now() - called)
        stamps.append((before, begin, stamp()))
    device.synchronize()
    host_s = now() - started
    return Block(
        ms=tuple(device.elapsed_ms(begin, end) for _, begin, end in stamps),
        flush_ms=statistics.median(device.elapsed_ms(before, begin) for before, begin, _ in stamps),
        host_s=host_s,
        call_s=statistics.median(calls),
    )


def run_unflushed(device: Device, call: Callable[[int], object], count: int) -> Loop:
    """Run `call(0)` to `call(count - 1)` as fast as they can be launched, then wait for the whole device."""
    now = device.now
    started = now()
    for index in range(count):
        call(index)
    issued = now()
    device.synchronize()
    return Loop(count=count, host_s=now() - started, issue_s=issued - started)


class Tier(Frozen):
    """How many samples are enough. Seconds are host seconds, for candidate and baseline together.

    Timing stops at the end of a round once `max_samples` or `max_seconds` are reached, or once there are
    `min_samples` over at least `min_seconds` and both models' samples have a relative standard error below
    `rel_stderr` or a relative standard deviation below `rel_std`.
    """

    name: str
    warmup: int = Field(ge=2)
    min_samples: int = Field(ge=1)
    max_samples: int = Field(ge=1)
    min_seconds: float
    max_seconds: float
    rel_stderr: float
    rel_std: float
    block: int = Field(ge=1)
    """Samples between two changes from one model to the other; fewer when calls are slow."""

    def at_most(self, samples: int | None) -> Tier:
        """The same with fewer samples, where a number is given."""
        if samples is None:
            return self
        return self.model_copy(update={"max_samples": samples, "min_samples": min(self.min_samples, samples)})


SCREEN = Tier(
    name="screen",
    warmup=10,
    min_samples=30,
    max_samples=30,
    min_seconds=0.0,
    max_seconds=1.0,
    rel_stderr=0.0,
    rel_std=0.0,
    block=5,
)
CONFIRM = Tier(
    name="confirm",
    warmup=20,
    min_samples=100,
    max_samples=20_000,
    min_seconds=0.5,
    max_seconds=15.0,
    rel_stderr=1e-3,
    rel_std=5e-3,
    block=10,
)

_WARMUP_SHARE = 0.25
_WARMUP_SECONDS = 0.05
"""Enough for a GPU that has just checked the same kernels; slow calls need not be repeated twenty times."""
_LEAST_ROUNDS = 3
_LONG_SECONDS = 2e-3


def interleave(tier: Tier, candidate: Runner, baseline: Runner | None, now: Callable[[], float]) -> Samples:
    """Warm both models up, then take blocks in the order candidate, baseline, baseline, candidate until `tier` is met.

    That order makes a linear drift (a GPU that grows warm) cancel within each round. Slow calls get smaller blocks
    and less warm-up, so that a tier's `max_seconds` is exceeded by one round at most; the least is two warm-up calls
    and one round of single calls. A baseline whose calls take milliseconds, which hardly scatter, gets blocks of half
    the candidate's size. The first call of each does not count. Raises whatever the runners raise.
    """
    began = now()
    models = [_Model(candidate)] + ([_Model(baseline)] if baseline is not None else [])
    for model in models:
        model.take(1, keep=False)  # may compile, so it says nothing about the calls behind it
    started = now()
    room_s = min(tier.max_seconds * _WARMUP_SHARE / len(models), _WARMUP_SECONDS)
    each_s = [_warm_up(model, tier, room_s, now) for model in models]
    size = _block_size(tier, sum(each_s), tier.max_seconds - (now() - started))
    turns = [(models[0], size)]
    turns += [
        (model, max(1, size // 2) if s > _LONG_SECONDS else size) for model, s in zip(models, each_s, strict=True)
    ][1:]
    while True:
        for model, count in (*turns, *reversed(turns)):
            model.take(count)
        if _enough(tier, models, now() - started):
            break
    first, *others = models
    return Samples(
        candidate=tuple(first.blocks),
        baseline=tuple(others[0].blocks) if others else (),
        seconds=now() - began,
    )


class _Model:
    """One side of a comparison: its runner, and how many calls it has made."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._calls = 0
        self.blocks: list[Block] = []

    def take(self, count: int, keep: bool = True) -> None:
        block = self._runner(count, self._calls)
        self._calls += count
        if keep:
            self.blocks.append(block)

    def times(self) -> Iterator[float]:
        for block in self.blocks:
            yield from block.ms


def _warm_up(model: _Model, tier: Tier, room_s: float, now: Callable[[], float]) -> float:
    """Warm a model up for the tier's number of calls or for `room_s`; returns host seconds per call."""
    started = now()
    model.take(1, keep=False)
    each_s = max(now() - started, 1e-9)
    more = min(tier.warmup - 2, int(room_s / each_s))
    if more < 1:
        return each_s
    started = now()
    # No block is longer than a tier's, since the outputs of a block may be kept.
    for done in range(0, more, tier.block):
        model.take(min(tier.block, more - done), keep=False)
    return (now() - started) / more


def _block_size(tier: Tier, pair_s: float, left_s: float) -> int:
    """Samples per block, such that a few rounds of two blocks of each model fit into `left_s`."""
    fitting = int(left_s / (_LEAST_ROUNDS * 2 * max(pair_s, 1e-9)))
    return max(1, min(tier.block, fitting))


def _enough(tier: Tier, models: list[_Model], seconds: float) -> bool:
    count = sum(len(block.ms) for block in models[0].blocks)
    if count >= tier.max_samples or seconds >= tier.max_seconds:
        return True
    if count < tier.min_samples or seconds < tier.min_seconds:
        return False
    for model in models:
        spread = relative_spread(list(model.times()))
        own = sum(len(block.ms) for block in model.blocks)
        if spread > tier.rel_std and spread / own**0.5 > tier.rel_stderr:
            return False
    return True
