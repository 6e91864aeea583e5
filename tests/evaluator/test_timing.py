from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.samples import Block
from evaluator.testing_device import FakeDevice
from evaluator.timing import CONFIRM, SCREEN, Tier, interleave, run_block, run_unflushed


class Bench:
    """Two models on one fake device, and a log of what was asked of them."""

    def __init__(self, candidate_s=50e-6, baseline_s=100e-6, host_s=None):
        self.device = FakeDevice()
        self.asked = []
        self.candidate = self.runner("A", candidate_s, host_s)
        self.baseline = self.runner("B", baseline_s, host_s)

    def runner(self, name, seconds, host_s):
        def run(count, first):
            self.asked.append((name, count, first))
            return run_block(self.device, lambda _: self.device.launch(seconds, host_s=host_s), count, first)

        return run

    def timed(self, samples):
        """Names of the models in the order of their kept blocks."""
        kept = len(samples.candidate) + len(samples.baseline)
        return "".join(name for name, _, _ in self.asked[-kept:])


def test_a_sample_is_the_kernel_without_its_launch_and_flush():
    device = FakeDevice()
    block = run_block(device, lambda _: device.launch(40e-6, host_s=20e-6), 10, 0)
    assert block.ms == pytest.approx([0.04] * 10, rel=0.01)
    assert block.flush_ms == pytest.approx(0.035, rel=0.2)
    assert block.call_s == pytest.approx(20e-6)


def test_every_sample_has_a_flush_before_it():
    device = FakeDevice()
    run_block(device, lambda _: None, 7, 0)
    assert device.flushes == 7


def test_a_launch_slower_than_the_flush_shows_in_the_sample():
    device = FakeDevice(flush_s=35e-6)
    block = run_block(device, lambda _: device.launch(2e-6, host_s=200e-6), 10, 0)
    assert min(block.ms) > 0.15


def test_a_block_calls_with_consecutive_numbers():
    device, seen = FakeDevice(), []
    run_block(device, seen.append, 3, 8)
    assert seen == [8, 9, 10]


def test_the_host_time_of_a_block_holds_work_that_events_do_not_see():
    device = FakeDevice()
    block = run_block(device, lambda _: device.launch(1e-3, stream="side"), 10, 0)
    assert sum(block.ms) < 0.5
    assert block.host_s > 10e-3


def test_a_block_passes_a_candidates_exception_on():
    def broken(index):
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        run_block(FakeDevice(), broken, 3, 0)


def test_a_loop_has_no_flush_and_ends_with_the_device_at_rest():
    device = FakeDevice()
    loop = run_unflushed(device, lambda _: device.launch(1e-3, stream="side", host_s=10e-6), 20)
    assert device.flushes == 0
    assert loop.issue_s == pytest.approx(20 * 10e-6)
    assert loop.host_s == pytest.approx(20e-3, rel=0.01)


def test_the_screen_tier_takes_thirty_samples_of_each_after_ten_warm_up_calls():
    bench = Bench()
    samples = interleave(SCREEN, bench.candidate, bench.baseline, bench.device.now)
    for blocks in (samples.candidate, samples.baseline):
        assert sum(len(block.ms) for block in blocks) == 30
    for name in "AB":
        calls = sum(count for model, count, _ in bench.asked if model == name)
        assert calls == 1 + 9 + 30


def test_the_models_take_turns_so_that_a_drift_cancels():
    bench = Bench()
    samples = interleave(SCREEN, bench.candidate, bench.baseline, bench.device.now)
    assert bench.timed(samples) == "ABBA" * 3


def test_every_call_of_a_model_has_the_next_number_so_that_the_ring_of_inputs_turns():
    bench = Bench()
    interleave(SCREEN, bench.candidate, bench.baseline, bench.device.now)
    for name in "AB":
        numbers = [list(range(first, first + count)) for model, count, first in bench.asked if model == name]
        assert list(itertools.chain(*numbers)) == list(range(sum(map(len, numbers))))


def test_a_candidate_is_timed_alone_without_a_baseline():
    bench = Bench()
    samples = interleave(SCREEN, bench.candidate, None, bench.device.now)
    assert samples.baseline == ()
    assert {name for name, _, _ in bench.asked} == {"A"}


def test_no_block_is_longer_than_the_tiers_not_even_in_warm_up():
    bench = Bench()
    interleave(SCREEN.model_copy(update={"block": 2}), bench.candidate, bench.baseline, bench.device.now)
    assert max(count for _, count, _ in bench.asked) == 2


def test_warm_up_is_not_among_the_samples():
    device = FakeDevice()
    calls = itertools.count()

    def cold_at_first(count, first):
        return run_block(device, lambda _: device.launch(2e-3 if next(calls) < 10 else 1e-5), count, first)

    samples = interleave(SCREEN, cold_at_first, None, device.now)
    assert max(ms for block in samples.candidate for ms in block.ms) < 1


def test_a_slow_kernel_is_not_timed_much_longer_than_the_tier_allows():
    bench = Bench(candidate_s=0.05, baseline_s=0.05)
    samples = interleave(SCREEN, bench.candidate, bench.baseline, bench.device.now)
    assert samples.seconds < 2 * SCREEN.max_seconds
    assert len(samples.candidate) == len(samples.baseline) >= 2


def test_a_kernel_of_seconds_still_gets_one_round():
    bench = Bench(candidate_s=3.0, baseline_s=3.0)
    samples = interleave(SCREEN, bench.candidate, bench.baseline, bench.device.now)
    assert bench.timed(samples) == "ABBA"
    assert all(len(block.ms) == 1 for block in samples.candidate)


def test_a_first_call_that_compiles_does_not_use_up_the_tiers_time():
    device = FakeDevice()
    calls = itertools.count()

    def compiles(count, first):
        def call(_):
            device.launch(1e-4, host_s=20.0 if next(calls) == 0 else 1e-5)

        return run_block(device, call, count, first)

    samples = interleave(SCREEN, compiles, None, device.now)
    assert sum(len(block.ms) for block in samples.candidate) == 30


def test_a_steady_kernel_is_confirmed_in_half_a_second():
    bench = Bench()
    samples = interleave(CONFIRM, bench.candidate, bench.baseline, bench.device.now)
    assert CONFIRM.min_seconds <= samples.seconds < 0.6
    assert sum(len(block.ms) for block in samples.candidate) >= CONFIRM.min_samples


def test_a_noisy_baseline_is_timed_longer():
    steady, noisy = Bench(), Bench()
    turns = itertools.cycle((1.0, 1.5, 0.7, 1.2))
    usual = noisy.device.launch
    noisy.baseline = noisy_runner(noisy.device, usual, turns)
    quick = interleave(CONFIRM, steady.candidate, steady.baseline, steady.device.now)
    long = interleave(CONFIRM, noisy.candidate, noisy.baseline, noisy.device.now)
    assert long.seconds > 2 * quick.seconds


def noisy_runner(device, launch, factors):
    return lambda count, first: run_block(device, lambda _: launch(1e-3 * next(factors)), count, first)


@settings(max_examples=60, deadline=None)
@given(
    call_s=st.floats(1e-6, 0.5),
    spread=st.floats(0.0, 0.3),
    tier=st.sampled_from(
        [SCREEN, CONFIRM.model_copy(update={"max_samples": 400}), CONFIRM.model_copy(update={"max_seconds": 1.0})]
    ),
    seed=st.integers(0, 99),
)
def test_a_tier_stops_by_its_own_rules(call_s, spread, tier, seed):
    import random

    draw = random.Random(seed)
    clock = [0.0]

    def run(count, first):
        ms = tuple(call_s * 1e3 * (1 + spread * draw.random()) for _ in range(count))
        clock[0] += sum(ms) / 1e3
        return Block(ms=ms, flush_ms=0.0, host_s=sum(ms) / 1e3, call_s=1e-6)

    samples = interleave(tier, run, run, lambda: clock[0])
    assert len(samples.candidate) == len(samples.baseline)
    count = sum(len(block.ms) for block in samples.candidate)
    per_round = 2 * tier.block
    assert count < tier.max_samples + per_round
    slowest_round = max(2 * sum(block.host_s for block in samples.candidate[-2:]) * 1.5, 1e-3)
    warm_up = 2 * (2 * call_s * 1.3) + tier.max_seconds * 0.5 + 2 * call_s * 1.3
    assert samples.seconds <= tier.max_seconds + slowest_round + warm_up
    if samples.seconds < tier.max_seconds:
        assert count >= min(tier.min_samples, tier.max_samples)


def test_a_tier_needs_at_least_one_sample():
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        Tier.model_validate(SCREEN.model_dump() | {"min_samples": 0})


def test_a_tier_can_be_told_to_take_fewer_samples():
    assert CONFIRM.at_most(None) is CONFIRM
    bench = Bench(candidate_s=0.006, baseline_s=0.006)
    samples = interleave(CONFIRM.at_most(40), bench.candidate, bench.baseline, bench.device.now)
    assert sum(len(block.ms) for block in samples.candidate) == 40


def test_a_baseline_of_milliseconds_gets_half_the_samples_in_as_many_blocks():
    bench = Bench(candidate_s=0.003, baseline_s=0.003)
    samples = interleave(SCREEN, bench.candidate, bench.baseline, bench.device.now)
    assert len(samples.candidate) == len(samples.baseline)
    assert sum(len(block.ms) for block in samples.candidate) == 30
    assert sum(len(block.ms) for block in samples.baseline) == 12
    quick = Bench(candidate_s=0.003, baseline_s=0.001)
    samples = interleave(SCREEN, quick.candidate, quick.baseline, quick.device.now)
    assert sum(len(block.ms) for block in samples.baseline) == 30
