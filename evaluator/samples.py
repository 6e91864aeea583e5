"""Raw samples as they come from a worker, and whether they can be what really happened."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import ValidationError

from evaluator.types import Frozen

# Events have a resolution of half a microsecond, and the clocks of GPU and host do not tick exactly alike.
_EVENT_STEP_S = 2e-6
_CLOCK_RATE = 1.02


class UntrustedSamplesError(Exception):
    """A worker's samples cannot be what really happened; the message says why."""


class Block(Frozen):
    """Consecutive timed calls of one model, each with a cold L2."""

    ms: tuple[float, ...]
    """Device milliseconds of each call, between an event before and an event behind it."""
    flush_ms: float
    """Median device milliseconds of flushing and idling before each call."""
    host_s: float
    """Host seconds from before the first flush until the whole device was idle."""
    call_s: float
    """Median host seconds until a call returned: what launching costs."""


class Loop(Frozen):
    """Calls back to back, then the device at rest."""

    count: int
    host_s: float
    """Host seconds from before the first call until the whole device was idle."""
    issue_s: float
    """Host seconds until the last call had returned."""


class Samples(Frozen):
    """Blocks of a candidate and of its baseline, in the order they were taken.

    Block i of the one was taken next to block i of the other, in the order candidate, baseline, baseline, candidate,
    candidate, … A candidate timed alone has no baseline blocks.
    """

    candidate: tuple[Block, ...]
    baseline: tuple[Block, ...] = ()
    seconds: float
    """Host seconds that timing took, warm-up included."""


_Record = TypeVar("_Record", bound=Frozen)


def read_block(answer: Any, count: int, elapsed_s: float) -> Block:
    """A worker's answer as a block of `count` samples, which the judge waited `elapsed_s` seconds for.

    Raises `UntrustedSamplesError` when it is no block, has another number of samples, a time that is not finite and
    positive, or times that do not fit into the time that passed.
    """
    block = _record(Block, answer)
    if len(block.ms) != count:
        raise UntrustedSamplesError(f"{len(block.ms)} samples came back, {count} were asked for")
    _positive("sample", [*block.ms, block.host_s])
    _not_negative("flush or launch", [block.flush_ms, block.call_s])
    _fits("the block", block.host_s, elapsed_s)
    _fits("the samples", sum(block.ms) / 1e3 - count * _EVENT_STEP_S, block.host_s)
    return block


def read_loop(answer: Any, count: int, elapsed_s: float) -> Loop:
    """A worker's answer as a loop of `count` calls. Raises `UntrustedSamplesError` like `read_block`."""
    loop = _record(Loop, answer)
    if loop.count != count:
        raise UntrustedSamplesError(f"a loop of {loop.count} calls came back, {count} calls were asked for")
    _positive("loop", [loop.host_s])
    _not_negative("launch", [loop.issue_s])
    _fits("launching", loop.issue_s, loop.host_s)
    _fits("the loop", loop.host_s, elapsed_s)
    return loop


def _record(kind: type[_Record], answer: Any) -> _Record:
    try:
        return kind.model_validate(answer)
    except ValidationError as error:
        raise UntrustedSamplesError(
            f"this is no {kind.__name__.lower()} of samples: {error.errors()[0]['msg']}"
        ) from None


def _positive(what: str, values: Iterable[float]) -> None:
    for value in values:
        if not (math.isfinite(value) and value > 0):
            raise UntrustedSamplesError(f"a {what} cannot take {value}")


def _not_negative(what: str, values: Iterable[float]) -> None:
    for value in values:
        if not (math.isfinite(value) and value >= 0):
            raise UntrustedSamplesError(f"a {what} cannot take {value}")


def _fits(what: str, seconds: float, room_s: float) -> None:
    if seconds > room_s * _CLOCK_RATE:
        raise UntrustedSamplesError(f"{what} cannot have taken {seconds:.6f} s when {room_s:.6f} s passed")
