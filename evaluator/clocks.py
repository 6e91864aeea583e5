"""Whether three clocks tell the same story about a kernel: events, the judge's own clock, the profiler.

Events see one stream between two stamps. Work hidden from them (on another stream, in a background thread, behind a
replaced clock) still occupies the GPU, so calls back to back take longer on the judge's clock, which ends with the
device at rest, than their events say. The profiler sees the work of every stream.

What an honest call may cost. Launching is slower than many kernels, so calls back to back take the larger of
`events` and `issue` (host time until a call returns). But `issue` itself is bounded: in a timed block the host
launches while the device flushes L2, so a launch that outlasts the flush shows in the events. An honest `issue` is
therefore at most `flush + events`; a longer one means that the call waits for something that events do not see.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from evaluator.samples import Loop, Samples
from evaluator.types import EvalStatus, Frozen

TOLERANCE = 0.25
"""Of the events: clocks of a GPU fall under sustained load, and L2 is cold in one measurement and warm in another."""
DEVICE_SLACK_MS = 0.010
"""Per call: gaps between kernels, the resolution of events, the profiler's own cost."""
HOST_SLACK_MS = 0.050
"""Per call: what a host does beside launching, such as Python behind the last launch, or queueing flush and stamps."""
LOOP_MS = 15.0


class Clocks(Frozen):
    """One model's milliseconds per call on every clock."""

    events_ms: float
    """Median of the timed samples (cold L2)."""
    flush_ms: float
    """Device time of the flush before each sample."""
    outside_ms: float
    """The judge's clock around calls back to back that end with the device at rest, less the round trip."""
    inside_ms: float
    """The same on the worker's clock, as the worker says."""
    issue_ms: float
    """Of these, until the last call had returned, as the worker says."""
    profiler_ms: float | None = None
    """Device time in which any stream was busy; None when there is no profile."""


class Disagreement(NamedTuple):
    """What the clocks give away."""

    status: EvalStatus
    reason: str


def loop_length(call_ms: float) -> int:
    """Calls of a loop for the judge's clock: 15 ms of work, so that the round trip to the worker hardly counts."""
    return min(max(math.ceil(LOOP_MS / call_ms), 5), 2000)


def clocks_of(
    samples: Samples, loops: Sequence[tuple[Loop, float]], round_trip_s: float, profiler_ms: float | None = None
) -> Clocks:
    """The candidate's clocks from checked samples and from loops with the seconds that the judge waited for each.

    `round_trip_s` is what an empty request to the worker takes. The quickest loop counts: a busy host makes them
    longer, nothing makes them shorter. The flush is timed by the baseline's worker where there is one, which has no
    reason to lie.
    """
    trusted = samples.baseline or samples.candidate
    loop, elapsed_s = min(loops, key=lambda pair: pair[1] / pair[0].count)
    return Clocks(
        events_ms=median(ms for block in samples.candidate for ms in block.ms),
        flush_ms=median(block.flush_ms for block in trusted),
        outside_ms=max(elapsed_s - round_trip_s, 0.0) / loop.count * 1e3,
        inside_ms=loop.host_s / loop.count * 1e3,
        issue_ms=loop.issue_s / loop.count * 1e3,
        profiler_ms=profiler_ms,
    )


def disagreement(clocks: Clocks) -> Disagreement | None:
    """Why the events cannot be trusted, or None when the clocks agree.

    DEFERRED_WORK when the device still works after the last call has returned and its events have passed;
    TIMING_TAMPER when calls take longer than their events can explain, or a worker's clock is not the judge's.
    """
    events, issue, flush = clocks.events_ms, clocks.issue_ms, clocks.flush_ms
    margin = TOLERANCE * events + DEVICE_SLACK_MS
    if clocks.outside_ms > clocks.inside_ms * (1 + TOLERANCE) + HOST_SLACK_MS:
        return _tamper(clocks.outside_ms, "by the judge's clock", clocks.inside_ms, "by the worker's")
    if clocks.inside_ms > max(events, issue) + margin:
        return _deferred(clocks.inside_ms, "back to back", max(events, issue))
    if issue > flush + events + margin + HOST_SLACK_MS:
        return _tamper(issue, "until it returns", events, "between its events")
    if clocks.profiler_ms is not None and clocks.profiler_ms > events + margin:
        return _tamper(clocks.profiler_ms, "of device time in the profiler", events, "between its events")
    return None


def _tamper(longer: float, where: str, shorter: float, elsewhere: str) -> Disagreement:
    text = f"a call takes {longer:.4f} ms {where} but only {shorter:.4f} ms {elsewhere}"
    return Disagreement(EvalStatus.TIMING_TAMPER, text)


def _deferred(total: float, where: str, explained: float) -> Disagreement:
    text = (
        f"a call keeps the device busy for {total:.4f} ms {where}; its events and launches explain {explained:.4f} ms"
    )
    return Disagreement(EvalStatus.DEFERRED_WORK, text)
