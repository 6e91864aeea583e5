from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.samples import Block, Samples
from evaluator.summary import ratio_interval, relative_spread, signed_rank_quantile, summarise


def block(ms, call_s=1e-5):
    return Block(ms=tuple(float(value) for value in ms), flush_ms=0.03, host_s=1.0, call_s=call_s)


def samples(candidate, baseline=()):
    return Samples(candidate=tuple(map(block, candidate)), baseline=tuple(map(block, baseline)), seconds=1.0)


def simulated(rng, *, ratio, rounds, size=10, noise=0.02, drift=lambda position: 1.0, outliers=0.0):
    """Blocks in the order ABBA on a device whose clocks drift over [0, 1]."""
    taken = {"A": [], "B": []}
    order = "ABBA" * rounds
    for place, name in enumerate(order):
        positions = (place + np.arange(size) / size) / len(order)
        values = np.array([drift(position) for position in positions]) * rng.lognormal(0.0, noise, size)
        values *= np.where(rng.random(size) < outliers, 5.0, 1.0) * (ratio if name == "B" else 1.0)
        taken[name].append(block(values))
    return taken["A"], taken["B"]


def test_the_median_is_the_latency_and_the_rest_describes_its_spread():
    summary = summarise(samples([range(1, 6), range(6, 11)]))
    assert summary.median_ms == 5.5
    assert (summary.p20_ms, summary.p80_ms) == pytest.approx((2.8, 8.2))
    assert summary.mean_ms == 5.5
    assert summary.samples == 10
    assert summary.wall_ms == pytest.approx(0.01)
    assert summary.ratio is None
    assert summary.baseline_ms is None


def test_the_ratio_is_baseline_over_candidate():
    summary = summarise(samples([[2.0, 2.0]] * 6, [[3.0, 3.0]] * 6))
    assert summary.ratio == pytest.approx(1.5)
    assert summary.baseline_ms == 3.0
    assert summary.ratio_low == pytest.approx(1.5)
    assert summary.ratio_high == pytest.approx(1.5)


def test_fewer_than_six_pairs_have_no_interval():
    summary = summarise(samples([[1.0]] * 5, [[2.0]] * 5))
    assert summary.ratio == pytest.approx(2.0)
    assert summary.ratio_low is None
    assert summary.ratio_high is None


def test_a_few_outliers_change_neither_latency_nor_spread_nor_ratio():
    rng = np.random.default_rng(0)
    clean = rng.normal(1.0, 0.01, (10, 10))
    spoilt = clean.copy()
    spoilt[0, :3] = 50.0
    spoilt[7, 2] = 200.0
    before, after = (summarise(samples(values, np.full((10, 10), 2.0))) for values in (clean, spoilt))
    assert after.outliers >= 4 > before.outliers
    assert after.median_ms == pytest.approx(before.median_ms, rel=2e-3)
    assert after.rel_std == pytest.approx(before.rel_std, rel=0.2)
    assert after.ratio == pytest.approx(before.ratio, rel=5e-3)
    assert after.mean_ms > 3


def test_a_whole_wild_block_does_not_carry_the_ratio_away():
    rng = np.random.default_rng(1)
    ours, theirs = simulated(rng, ratio=2.0, rounds=8, noise=0.005)
    ours[3] = block(np.full(10, 40.0))
    _, ratio, _ = ratio_interval(ours, theirs)
    assert ratio == pytest.approx(2.0, rel=0.01)


def test_samples_on_the_clocks_steps_are_not_outliers():
    assert summarise(samples([[1.0] * 8 + [1.0005, 0.9995]])).outliers == 0


def test_a_clock_that_falls_half_way_spoils_the_medians_but_not_the_ratio():
    rng = np.random.default_rng(2)
    ours, theirs = simulated(rng, ratio=1.2, rounds=10, drift=lambda at: 1.0 if at < 0.49 else 1.5, noise=0.01)
    low, ratio, high = ratio_interval(ours, theirs)
    assert low < 1.2 < high
    assert ratio == pytest.approx(1.2, rel=0.01)


@pytest.mark.parametrize("trend", [0.3, -0.3])
def test_a_linear_drift_common_to_both_cancels(trend):
    rng = np.random.default_rng(3)
    ours, theirs = simulated(rng, ratio=1.1, rounds=10, noise=0.001, drift=lambda at: 1.0 + trend * at)
    _, ratio, _ = ratio_interval(ours, theirs)
    assert ratio == pytest.approx(1.1, rel=3e-3)


DRIFTS = {
    "steady": lambda at: 1.0,
    "warming": lambda at: 1.0 + 0.2 * at,
    "capped": lambda at: 1.0 if at < 0.37 else 1.3,
    "waves": lambda at: 1.0 + 0.05 * math.sin(40 * at),
}


@pytest.mark.parametrize("drift", DRIFTS)
@pytest.mark.parametrize("rounds", [3, 12])
def test_the_interval_holds_the_true_ratio_in_95_of_100_measurements(drift, rounds):
    rng = np.random.default_rng(rounds)
    trials, held = 200, 0
    for _ in range(trials):
        ours, theirs = simulated(rng, ratio=1.37, rounds=rounds, size=5, drift=DRIFTS[drift], outliers=0.02)
        low, _, high = ratio_interval(ours, theirs)
        held += low <= 1.37 <= high
    # Four standard deviations of a 95 % coin below; a drift within pairs only makes the interval wider.
    assert held / trials >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / trials)
    if drift == "steady":
        assert held / trials <= 0.995


def test_more_pairs_make_a_narrower_interval():
    rng = np.random.default_rng(5)
    widths = []
    for rounds in (3, 12, 48, 192):
        low, _, high = ratio_interval(*simulated(rng, ratio=1.0, rounds=rounds))
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.01


def test_thousands_of_pairs_are_handled():
    rng = np.random.default_rng(6)
    low, ratio, high = ratio_interval(*simulated(rng, ratio=1.5, rounds=2000, size=2))
    assert low < 1.5 < high
    assert high / low < 1.005
    assert low < ratio < high


positive = st.floats(1e-4, 1e4)
pairs = st.lists(st.tuples(positive, positive), min_size=1, max_size=30)


@settings(max_examples=100, deadline=None)
@given(pairs=pairs, scale=st.floats(1e-3, 1e3))
def test_the_ratio_does_not_depend_on_the_unit_of_time(pairs, scale):
    def interval(unit):
        return ratio_interval([block([a * unit]) for a, _ in pairs], [block([b * unit]) for _, b in pairs])

    for here, there in zip(interval(1.0), interval(scale), strict=True):
        assert (here is None) == (there is None)
        assert here is None or here == pytest.approx(there, rel=1e-6)


@settings(max_examples=100, deadline=None)
@given(pairs=pairs)
def test_exchanging_candidate_and_baseline_inverts_the_ratio(pairs):
    ours, theirs = [block([a]) for a, _ in pairs], [block([b]) for _, b in pairs]
    low, ratio, high = ratio_interval(ours, theirs)
    low2, ratio2, high2 = ratio_interval(theirs, ours)
    assert ratio == pytest.approx(1 / ratio2, rel=1e-6)
    if low is not None:
        assert low <= ratio * (1 + 1e-9) <= high * (1 + 2e-9)
        assert (low, high) == pytest.approx((1 / high2, 1 / low2), rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(values=st.lists(positive, min_size=2, max_size=60), scale=st.floats(0.5, 50.0))
def test_the_relative_spread_does_not_depend_on_the_unit_of_time(values, scale):
    assert relative_spread([value * scale for value in values]) == pytest.approx(relative_spread(values), rel=1e-6)


def test_one_sample_has_no_spread():
    assert relative_spread([3.0]) == 0.0


@pytest.mark.parametrize(("count", "critical"), [(5, -1), (6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (20, 52), (50, 434)])
def test_critical_values_are_those_of_the_published_tables(count, critical):
    assert signed_rank_quantile(count, 0.025) == critical


def test_the_normal_approximation_continues_the_exact_values():
    exact, approximate = signed_rank_quantile(50, 0.025), signed_rank_quantile(51, 0.025)
    assert 10 < approximate - exact < 25
