from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.rejection import (
    mrs_half_width,
    mrs_keeps,
    mrs_sigma,
    mrs_vetoes,
    mrs_weight,
    prs_keeps,
    prs_probability,
)

SHARE = st.floats(0, 1)
LOGPROBS = st.lists(st.floats(-8, 0), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("coverage", "expected"), [(0.0, 0.0), (0.3, 0.0), (0.35, 0.5), (0.4, 1.0), (1.0, 1.0), (None, 1.0)]
)
def test_prs_rises_from_nothing_at_30_percent_coverage_to_certainty_at_40(coverage, expected):
    assert prs_probability(coverage) == pytest.approx(expected)


@given(SHARE, SHARE)
def test_prs_is_a_probability_that_never_falls_with_coverage(one, other):
    low, high = sorted((one, other))
    assert 0 <= prs_probability(low) <= prs_probability(high) <= 1


@given(SHARE, st.floats(0, 1, exclude_max=True))
def test_prs_keeps_every_incorrect_turn(coverage, draw):
    assert prs_keeps(False, coverage, draw)


@given(st.floats(0, 1, exclude_max=True))
def test_prs_never_keeps_a_correct_turn_at_its_lower_bound_and_always_at_its_upper(draw):
    assert not prs_keeps(True, 0.3, draw)
    assert prs_keeps(True, 0.41, draw)


def test_prs_keeps_a_correct_turn_as_often_as_its_probability_says():
    draws = [number / 100 for number in range(100)]
    assert sum(prs_keeps(True, 0.35, draw) for draw in draws) == 50


def test_the_weight_is_the_geometric_mean_of_the_token_ratios():
    train, sample = [math.log(0.5), math.log(0.2)], [math.log(0.25), math.log(0.4)]
    assert mrs_weight(train, sample) == pytest.approx(math.sqrt(2 * 0.5))
    assert mrs_weight([math.log(0.6)], [math.log(0.2)]) == pytest.approx(3)


@given(LOGPROBS)
def test_equal_logprobs_weigh_1_and_are_kept(logprobs):
    assert mrs_weight(logprobs, logprobs) == 1
    assert mrs_keeps(logprobs, logprobs, sigma=0.0)


def test_the_half_width_is_three_sigma_over_the_root_of_the_length():
    assert mrs_half_width(0.02, 1) == pytest.approx(0.06)
    assert mrs_half_width(0.02, 100) == pytest.approx(0.006)
    assert mrs_half_width(0.02, 1_000_000) == 1e-3


@given(st.floats(0, 1), st.integers(1, 10_000), st.integers(1, 10_000))
def test_longer_answers_get_a_narrower_band_down_to_the_floor(sigma, one, other):
    short, long = sorted((one, other))
    assert mrs_half_width(sigma, short) >= mrs_half_width(sigma, long) >= 1e-3


def test_four_times_the_tokens_halve_the_band():
    assert mrs_half_width(0.5, 4) == pytest.approx(2 * mrs_half_width(0.5, 16))


def test_a_shift_that_a_short_answer_may_have_rejects_a_long_one():
    def shifted(tokens):
        return [-1.0 + 0.01] * tokens, [-1.0] * tokens

    assert mrs_keeps(*shifted(4), sigma=0.02)
    assert not mrs_keeps(*shifted(400), sigma=0.02)


@pytest.mark.parametrize("shift", [0.2, -0.2])
def test_the_band_has_two_sides(shift):
    assert not mrs_keeps([-1 + shift] * 50, [-1.0] * 50, sigma=0.02)


def test_one_excluded_token_vetoes_a_sequence_whose_mean_is_fine():
    train, sample = [-1.0 + 10 / 999] * 999 + [-11.0], [-1.0] * 1000
    assert mrs_weight(train, sample) == pytest.approx(1)
    assert mrs_vetoes(train, sample)
    assert not mrs_keeps(train, sample, sigma=10.0)


def test_the_veto_begins_below_one_in_ten_thousand():
    assert not mrs_vetoes([math.log(1.01e-4)], [0.0])
    assert mrs_vetoes([math.log(0.99e-4)], [0.0])


def test_a_token_the_sampler_called_impossible_rejects_its_sequence():
    assert mrs_weight([-1.0], [-math.inf]) == math.inf
    assert not mrs_keeps([-1.0], [-math.inf], sigma=10.0)


def test_sigma_is_the_scatter_of_all_token_ratios():
    assert mrs_sigma([[-1.0, -1.2], [-2.0]], [[-1.1, -1.1], [-2.0]]) == pytest.approx(math.sqrt(0.02 / 3))
    assert mrs_sigma([], []) == 0.0


@pytest.mark.parametrize("check", [mrs_weight, mrs_vetoes, lambda a, b: mrs_keeps(a, b, 0.1)])
@pytest.mark.parametrize(("train", "sample"), [([], []), ([-1.0], [-1.0, -2.0])])
def test_logprobs_that_do_not_pair_up_are_refused(check, train, sample):
    with pytest.raises(ValueError, match=f"{len(train)} training logprobs but {len(sample)} sampling logprobs"):
        check(train, sample)


def test_no_tokens_have_no_band():
    with pytest.raises(ValueError, match="0 tokens"):
        mrs_half_width(0.1, 0)
