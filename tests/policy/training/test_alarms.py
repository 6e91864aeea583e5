from __future__ import annotations

import pytest

from policy.training.alarms import WINDOW, Alarms

FINE = {"zero_variance": 0.2, "unique_ast": 0.9, "entropy": 1.0, "hack_rate": 0.0, "fast@1": 0.5, "fast@1.2": 0.2}


def hear(*steps):
    alarms = Alarms()
    return [alarms.hear({**FINE, **step}) for step in steps], alarms


@pytest.mark.parametrize(
    ("name", "edge", "beyond"), [("zero_variance", 0.6, 0.61), ("unique_ast", 0.3, 0.29), ("entropy", 0.5, 0.49)]
)
def test_a_limit_itself_is_fine_and_what_is_beyond_it_rings(name, edge, beyond):
    said, _ = hear({}, {name: edge}, {name: beyond})
    assert [list(words) for words in said] == [[], [], [name]]


def test_an_alarm_is_said_when_it_begins_and_again_after_it_ended():
    bad = {"unique_ast": 0.1}
    said, alarms = hear(bad, bad, {}, bad)
    assert [bool(words) for words in said] == [True, False, False, True]
    assert alarms.ringing == ["unique_ast"]


def test_a_rising_hack_rate_rings_once_two_windows_are_known():
    rise = [{"hack_rate": 0.0}] * WINDOW + [{"hack_rate": 0.1}] * WINDOW
    said, _ = hear(*rise)
    assert [index for index, words in enumerate(said) if "hack_rate" in words] == [2 * WINDOW - 1]


@pytest.mark.parametrize(("faster", "rings"), [(0.2, True), (0.3, False)])
def test_tiny_gains_ring_only_while_large_ones_do_not_grow(faster, rings):
    steps = [{}] * WINDOW + [{"fast@1": 0.9, "fast@1.2": faster}] * WINDOW
    said, _ = hear(*steps)
    assert ("small_gains" in said[-1]) == rings


def test_steps_without_rewards_ring_nothing():
    alarms = Alarms()
    assert [alarms.hear({"loss": 1.0}) for _ in range(20)] == [{}] * 20
