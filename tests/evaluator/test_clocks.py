from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.clocks import Clocks, clocks_of, disagreement, loop_length
from evaluator.samples import Samples
from evaluator.testing_device import FakeDevice
from evaluator.timing import run_block, run_unflushed
from evaluator.types import EvalStatus

ROUND_TRIP_S = 3e-4


def measured(call, *, device=None, profiler_ms=None, loops=3):
    """The clocks of a model whose `call(device)` is one forward, as the judge takes them."""
    device = device or FakeDevice()
    blocks = tuple(run_block(device, lambda _: call(device), 10, 0) for _ in range(6))
    events = sorted(ms for block in blocks for ms in block.ms)[30]
    taken = []
    for _ in range(loops):
        loop = run_unflushed(device, lambda _: call(device), loop_length(events))
        taken.append((loop, loop.host_s + ROUND_TRIP_S))
    trusted = run_block(device, lambda _: device.launch(1e-4), 5, 0)
    samples = Samples(candidate=blocks, baseline=(trusted,) * 6, seconds=1.0)
    return clocks_of(samples, taken, ROUND_TRIP_S, profiler_ms)


def status(clocks):
    found = disagreement(clocks)
    return None if found is None else found.status


@settings(max_examples=200, deadline=None)
@given(
    kernels=st.lists(st.tuples(st.floats(1e-6, 5e-3), st.floats(2e-6, 3e-4)), min_size=1, max_size=6),
    before_s=st.floats(0.0, 1e-3),
    after_s=st.floats(0.0, 3e-5),
    waits=st.booleans(),
    flush_s=st.floats(1e-5, 1e-4),
)
def test_an_honest_kernel_is_never_blamed(kernels, before_s, after_s, waits, flush_s):
    def forward(device):
        device.busy(before_s)
        for seconds, host_s in kernels:
            device.launch(seconds, host_s=host_s)
        if waits:  # .item(), say
            device.wait()
        device.busy(after_s)

    profiler_ms = sum(seconds for seconds, _ in kernels) * 1e3
    clocks = measured(forward, device=FakeDevice(flush_s=flush_s), profiler_ms=profiler_ms)
    assert disagreement(clocks) is None


@settings(max_examples=60, deadline=None)
@given(seconds=st.floats(1e-6, 5e-3), seed=st.integers(0, 1000))
def test_clocks_of_the_gpu_that_wander_by_a_tenth_are_no_lie(seconds, seed):
    import random

    draw = random.Random(seed)
    device = FakeDevice()
    device.slowdown = lambda _: draw.uniform(0.95, 1.05)
    assert disagreement(measured(lambda d: d.launch(seconds), device=device, profiler_ms=seconds * 1e3)) is None


def test_a_launch_bound_kernel_may_take_longer_back_to_back_than_its_events_say():
    clocks = measured(lambda device: device.launch(3e-6, host_s=25e-6), profiler_ms=0.003)
    assert clocks.outside_ms > 4 * clocks.events_ms
    assert disagreement(clocks) is None


def test_two_streams_that_are_joined_are_honest():
    def forward(device):
        device.join("side", "main")
        device.launch(1e-3, stream="side")
        device.launch(1e-3)
        device.join("main", "side")

    assert disagreement(measured(forward, profiler_ms=1.01)) is None


@pytest.mark.parametrize("seconds", [1e-4, 1e-3, 1e-2])
def test_work_left_on_another_stream_is_deferred(seconds):
    def forward(device):
        device.launch(seconds, stream="side")
        device.launch(2e-6)

    assert status(measured(forward)) is EvalStatus.DEFERRED_WORK


def test_half_of_the_work_left_on_another_stream_is_deferred():
    def forward(device):
        device.launch(2e-3, stream="side")
        device.launch(1e-3)

    assert status(measured(forward)) is EvalStatus.DEFERRED_WORK


@pytest.mark.parametrize("seconds", [3e-4, 1e-3, 1e-2])
def test_a_host_that_waits_for_another_stream_shows_it_in_its_events(seconds):
    def forward(device):
        device.launch(seconds, stream="side")
        device.wait("side")
        device.launch(2e-6)

    clocks = measured(forward, profiler_ms=seconds * 1e3)
    assert clocks.events_ms > 0.5 * seconds * 1e3


def test_work_hidden_behind_the_flush_is_seen_by_the_profiler():
    def forward(device):
        device.launch(30e-6, stream="side")
        device.wait("side")
        device.launch(2e-6)

    blind, seeing = measured(forward), measured(forward, profiler_ms=0.032)
    assert blind.events_ms < 0.02
    assert disagreement(blind) is None
    assert status(seeing) is EvalStatus.TIMING_TAMPER


def forged(**changes):
    honest = measured(lambda device: device.launch(1e-3), profiler_ms=1.0)
    return honest.model_copy(update=changes)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"events_ms": 0.1}, EvalStatus.DEFERRED_WORK),
        ({"events_ms": 0.1, "issue_ms": 1.0}, EvalStatus.TIMING_TAMPER),
        ({"events_ms": 0.1, "issue_ms": 0.1, "inside_ms": 0.1}, EvalStatus.TIMING_TAMPER),
        ({"events_ms": 0.1, "issue_ms": 0.1, "inside_ms": 0.1, "outside_ms": 0.1}, EvalStatus.TIMING_TAMPER),
        ({"profiler_ms": 2.0}, EvalStatus.TIMING_TAMPER),
        ({"profiler_ms": None}, None),
        ({}, None),
    ],
)
def test_a_forged_clock_is_caught_by_the_others(changes, verdict):
    assert status(forged(**changes)) is verdict


def test_the_reason_names_both_times():
    found = disagreement(forged(events_ms=0.1, issue_ms=0.1, inside_ms=0.1))
    assert "1.0" in found.reason
    assert "0.1000 ms by the worker's" in found.reason


def test_the_quickest_loop_counts():
    device = FakeDevice()
    block = run_block(device, lambda _: device.launch(1e-3), 10, 0)
    loop = run_unflushed(device, lambda _: device.launch(1e-3), 20)
    disturbed = loop.model_copy(update={"host_s": loop.host_s * 3})
    samples = Samples(candidate=(block,), seconds=1.0)
    clocks = clocks_of(samples, [(disturbed, disturbed.host_s), (loop, loop.host_s)], 0.0)
    assert clocks.inside_ms == pytest.approx(1.0, rel=0.01)
    assert disagreement(clocks) is None


@pytest.mark.parametrize(("call_ms", "count"), [(0.001, 2000), (0.1, 150), (1.0, 15), (100.0, 5)])
def test_a_loop_takes_fifteen_milliseconds_within_bounds(call_ms, count):
    assert loop_length(call_ms) == count


def test_clocks_are_plain_data():
    clocks = forged()
    assert Clocks.model_validate_json(clocks.model_dump_json()) == clocks
