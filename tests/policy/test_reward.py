from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.types import EvalStatus
from policy.quality import quality_of
from policy.reward import FORMULAS, RewardInput, RewardSettings, input_of, reward_of
from tests.policy.turns import evaluation

PASSED = EvalStatus.PASSED
FAILURES = [status for status in EvalStatus if not status.passed]


def total(kind: str = "shaped", scale: float = 1.0, **given) -> float:
    return reward_of(RewardInput(**given), RewardSettings(type=kind, scale=scale)).total


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (EvalStatus.DECOY, -0.5),
        (EvalStatus.REJECTED_STATIC, -0.5),
        (EvalStatus.SYNTAX_ERROR, -0.4),
        (EvalStatus.MISSING_ENTRY_POINT, -0.4),
        (EvalStatus.DUPLICATE, -0.3),
        (EvalStatus.COMPILE_ERROR, -0.2),
        (EvalStatus.RUNTIME_ERROR, -0.2),
        (EvalStatus.TIMEOUT, -0.2),
        (EvalStatus.CRASHED, -0.2),
        (EvalStatus.WRONG_VALUE, -0.1),
        (EvalStatus.OUT_OF_BOUNDS, -0.1),
        (EvalStatus.PRECISION, -0.1),
    ],
)
def test_shaped_grades_every_kind_of_failure(status, expected):
    assert total(status=status) == pytest.approx(expected)


def test_shaped_pays_the_clipped_log_of_the_speedup():
    assert total(status=PASSED, speedup=2.0) == pytest.approx(0.3 + 0.5)
    assert total(status=PASSED, speedup=1.0) == pytest.approx(0.3)
    assert total(status=PASSED, speedup=0.1) == pytest.approx(0.3 - 0.5)
    assert total(status=PASSED, speedup=50.0) == pytest.approx(0.3 + 0.5 * 1.58)
    assert total(status=PASSED, speedup=2.0, coverage=0.8) == pytest.approx(0.3 + 0.5 + 0.4)


def test_shaped_punishes_repeating_even_a_correct_kernel():
    assert total(status=PASSED, speedup=2.0, unchanged=True) == pytest.approx(-0.3)
    assert total(status=PASSED, speedup=2.0, duplicate=True) == pytest.approx(-0.3)
    assert total(status=EvalStatus.WRONG_VALUE, parsed=False) == pytest.approx(-0.4)


def test_profile_pays_correctness_capped_speedup_and_coverage():
    assert total("profile", status=PASSED, speedup=2.0, coverage=0.5) == pytest.approx(1 + 2 + 0.5)
    assert total("profile", status=PASSED, speedup=9.0) == pytest.approx(1 + 3)
    assert total("profile", scale=0.5, status=PASSED, speedup=2.0, coverage=0.5) == pytest.approx(1.75)
    assert total("profile", status=EvalStatus.WRONG_VALUE) == 0


def test_weighted_pays_no_more_for_speed_beyond_the_baseline():
    assert total("weighted", status=PASSED, speedup=0.5, quality=0.8) == pytest.approx(0.6 + 0.15 + 0.08)
    assert total("weighted", status=PASSED, speedup=4.0, quality=1.0) == pytest.approx(1.0)
    assert total("weighted", status=EvalStatus.WRONG_VALUE, quality=0.8) == pytest.approx(0.08)


def test_simple_pays_the_share_of_time_saved_by_own_kernels():
    assert total("simple", status=PASSED, speedup=4.0, coverage=0.5) == pytest.approx(0.75 * 0.5)
    assert total("simple", status=PASSED, speedup=0.5, coverage=1.0) == pytest.approx(-1.0)
    assert total("simple", status=PASSED, speedup=4.0) == 0


def test_the_lower_confidence_bound_is_what_counts():
    fast = {"status": PASSED, "speedup": 2.2, "speedup_low": 2.0, "speedup_high": 2.4}
    slow = {"status": PASSED, "speedup": 0.6, "speedup_low": 0.5, "speedup_high": 0.7}
    assert total(**fast) == pytest.approx(0.8)
    assert total(**slow) == pytest.approx(-0.2)


def test_inside_the_noise_band_a_speedup_counts_as_one():
    assert total(status=PASSED, speedup=1.3, speedup_low=0.9, speedup_high=1.7) == pytest.approx(0.3)
    assert total(status=PASSED, speedup=0.8, speedup_low=0.5, speedup_high=1.1) == pytest.approx(0.3)


speeds = st.floats(0.001, 1000)
inputs = st.builds(
    RewardInput,
    status=st.sampled_from(list(EvalStatus)),
    is_hack=st.booleans(),
    speedup=st.none() | speeds,
    speedup_low=st.none() | speeds,
    speedup_high=st.none() | speeds,
    coverage=st.none() | st.floats(0, 1),
    parsed=st.booleans(),
    unchanged=st.booleans(),
    duplicate=st.booleans(),
    quality=st.floats(0, 1),
)


@given(inputs, st.sampled_from(sorted(FORMULAS)))
def test_a_hack_never_earns_a_positive_reward(case, kind):
    found = reward_of(case, RewardSettings(type=kind))
    if case.is_hack or case.status.is_hack:
        assert found.total <= 0


@given(inputs, st.sampled_from(sorted(FORMULAS)))
def test_components_add_up_to_a_finite_total(case, kind):
    found = reward_of(case, RewardSettings(type=kind))
    assert math.isfinite(found.total)
    assert found.total == pytest.approx(sum(found.components.values()))


@given(speeds, speeds, st.sampled_from(sorted(FORMULAS)))
def test_a_faster_kernel_never_earns_less(one, other, kind):
    slow, fast = sorted((one, other))
    rewards = [total(kind, status=PASSED, speedup=speed, coverage=1.0) for speed in (slow, fast)]
    assert rewards[0] <= rewards[1]


@given(st.sampled_from(FAILURES), st.sampled_from(["profile", "weighted", "simple", "shaped"]), st.floats(0, 1))
def test_no_failure_earns_what_a_correct_kernel_at_baseline_speed_earns(status, kind, quality):
    failure = total(kind, status=status, quality=quality)
    assert failure <= total(kind, status=PASSED, speedup=1.0, quality=0.0)


def test_a_modelled_latency_gives_a_reward_that_says_modelled():
    modelled = reward_of(input_of(evaluation("x = 1", speedup=2.0, kind="modelled")))
    measured = reward_of(input_of(evaluation("x = 1", speedup=2.0, kind="measured")))
    assert (modelled.timing_kind, measured.timing_kind) == ("modelled", "measured")


def test_the_judges_interval_and_coverage_reach_the_reward():
    judged = evaluation("x = 1", speedup=1.9, kind="measured", coverage=0.6, interval=(1.8, 2.0))
    given = input_of(judged)
    assert given.bound == pytest.approx(1.8)
    assert given.coverage == 0.6


def test_a_coverage_that_is_not_a_number_counts_as_unknown():
    assert input_of(evaluation("x = 1", coverage=math.nan)).coverage is None


TIDY = '"""A module."""\n\n\ndef add(a, b):\n    """Their sum."""\n    return a + b\n'


def test_a_small_documented_source_has_full_quality():
    assert quality_of(TIDY).total == 1.0


def test_quality_falls_with_findings_complexity_missing_docstrings_and_length():
    assert quality_of(TIDY + "import os\n").findings == 0.5
    assert quality_of(TIDY + "try:\n    add(1, 2)\nexcept:\n    pass\n").findings == 0.5
    branches = "".join(f"    if a == {number}:\n        return {number}\n" for number in range(19))
    assert quality_of(f"def choose(a):\n{branches}").complexity == pytest.approx(0.5)
    assert quality_of(TIDY + "\n\ndef more():\n    return 1\n").docstring == pytest.approx(2 / 3)
    assert quality_of("x = 1\n" * 600).length == pytest.approx(0.5)


@pytest.mark.parametrize("source", ["def (", "x = '\0'", "\ud800", "(" * 100_000])
def test_a_source_that_does_not_parse_has_no_quality(source):
    assert quality_of(source).total == 0


@given(st.text(max_size=200))
def test_quality_stays_between_zero_and_one(source):
    assert 0 <= quality_of(source).total <= 1
