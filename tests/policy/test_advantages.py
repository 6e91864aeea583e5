from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy import advantages
from policy.advantages import entropic, entropic_beta, grpo, returns, rloo, tilt_kl, trloo

REWARD = st.floats(-3, 3).map(lambda value: round(value, 3))
ROWS = st.lists(st.tuples(REWARD, st.sampled_from("abc")), max_size=12)
TRAJECTORIES = st.lists(st.tuples(st.lists(REWARD, max_size=4), st.sampled_from("ab")), max_size=8)


def of(estimator, rows):
    return estimator([reward for reward, _ in rows], [group for _, group in rows])


def unscaled(rewards, groups):
    return grpo(rewards, groups)


def scaled(rewards, groups):
    return grpo(rewards, groups, scale=True)


ESTIMATORS = [rloo, unscaled, scaled, entropic]


def test_rloo_compares_with_the_mean_of_the_others_in_the_group():
    assert rloo([1, 2, 6, 10], "aaab") == pytest.approx([1 - 4, 2 - 3.5, 6 - 1.5, 0])


def test_grpo_compares_with_the_mean_of_the_group_and_divides_by_nothing():
    assert grpo([1, 2, 6, 10, 20], "aaabb") == pytest.approx([-2, -1, 3, -5, 5])


def test_scaled_grpo_divides_by_the_sample_standard_deviation():
    # Variance of (1, 2, 6): (4 + 1 + 9) / 2 = 7.
    assert grpo([1, 2, 6], "aaa", scale=True) == pytest.approx(np.array([-2, -1, 3]) / (math.sqrt(7) + 1e-4))


def test_returns_add_up_what_is_still_to_come():
    assert returns([1, 2, 4]) == pytest.approx([7, 6, 4])
    assert returns([1, 2, 4], gamma=0.5) == pytest.approx([1 + 1 + 1, 2 + 2, 4])


def test_trloo_compares_returns_of_the_same_turn_of_the_same_task():
    # Returns: (3, 2), (5, 0), (1,), and a trajectory of another task.
    found = trloo([[1, 2], [5, 0], [1], [9]], ["a", "a", "a", "b"])
    assert [list(one) for one in found] == [
        pytest.approx([3 - 3, 2 - 0]),
        pytest.approx([5 - 2, 0 - 2]),
        pytest.approx([1 - 4]),
        [0],
    ]


def test_trloo_discounts():
    first, second = trloo([[1, 2], [0, 0]], "aa", gamma=0.5)
    assert (list(first), list(second)) == ([2, 2], [-2, -2])


def test_trloo_keeps_empty_trajectories_in_their_place():
    assert [len(one) for one in trloo([[1], [], [2, 3]], "aaa")] == [1, 0, 2]
    assert trloo([], []) == []


def test_entropic_weighs_the_best_answer_by_hand():
    # One winner of four at KL = ln 2: with w = e^-b, A(winner) = 1/w - 1, A(loser) = 3w/(1 + 2w) - 1.
    beta = entropic_beta([1, 0, 0, 0])
    w = math.exp(-beta)
    assert entropic([1, 0, 0, 0], "aaaa") == pytest.approx([1 / w - 1, *[3 * w / (1 + 2 * w) - 1] * 3])
    share = 1 / (1 + 3 * w)
    entropy = -share * math.log(share) - (1 - share) * math.log((1 - share) / 3)
    assert math.log(4) - entropy == pytest.approx(math.log(2))


@given(st.lists(REWARD, min_size=3, max_size=16))
def test_entropic_beta_tilts_by_exactly_ln_2_wherever_that_can_be_reached(rewards):
    ties = rewards.count(max(rewards))
    kl = tilt_kl(rewards, entropic_beta(rewards))
    if ties == len(rewards):
        assert kl == pytest.approx(0, abs=1e-12)
    elif len(rewards) > 2 * ties:
        assert kl == pytest.approx(math.log(2), abs=1e-9)
    else:
        assert kl == pytest.approx(math.log(len(rewards) / ties) / 2, abs=1e-9)


def test_a_pair_stays_finite_though_it_cannot_reach_ln_2():
    winner, loser = entropic([5, 1], "aa")
    assert 1 < winner < 100
    assert -1 < loser < 0


def test_answers_that_almost_tie_at_the_top_stay_finite():
    assert np.isfinite(entropic([1, 1 - 1e-12, 0, 0, 0], "aaaaa")).all()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_group_of_one_gets_0(estimator):
    assert list(estimator([3.0, -2.0], ["a", "b"])) == [0, 0]
    assert list(estimator([], [])) == []


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_equal_rewards_get_0(estimator):
    assert estimator([0.7] * 5, "aaaaa") == pytest.approx([0] * 5, abs=1e-9)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@given(rows=ROWS, shift=st.integers(-5, 5))
def test_adding_a_constant_to_all_rewards_changes_nothing(estimator, rows, shift):
    moved = [(reward + shift, group) for reward, group in rows]
    assert of(estimator, moved) == pytest.approx(of(estimator, rows), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("estimator", [rloo, unscaled])
@given(rows=ROWS)
def test_advantages_of_a_group_add_up_to_0(estimator, rows):
    found = of(estimator, rows)
    for group in "abc":
        assert sum(value for value, row in zip(found, rows, strict=True) if row[1] == group) == pytest.approx(
            0, abs=1e-9
        )


@pytest.mark.parametrize("estimator", ESTIMATORS)
@given(rows=ROWS)
def test_a_better_answer_of_a_group_never_gets_less(estimator, rows):
    found = of(estimator, rows)
    for one, (reward, group) in zip(found, rows, strict=True):
        for other, (better, same) in zip(found, rows, strict=True):
            assert group != same or reward >= better or one <= other + 1e-9


@given(TRAJECTORIES, st.sampled_from([0.0, 0.5, 1.0]))
def test_trloo_equals_rloo_on_flattened_turn_rows(trajectories, gamma):
    rewards, tasks = [one for one, _ in trajectories], [task for _, task in trajectories]
    rows = []
    for one, task in trajectories:
        for turn in range(len(one)):
            ahead = sum(gamma**step * reward for step, reward in enumerate(one[turn:]))
            rows.append((ahead, (task, turn)))
    flat = [value for one in trloo(rewards, tasks, gamma) for value in one]
    assert flat == pytest.approx(of(rloo, rows), abs=1e-9)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_reward_that_is_no_number_is_refused_by_its_place(estimator, bad):
    with pytest.raises(ValueError, match="reward 1 is"):
        estimator([0.0, bad], "aa")


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_missing_group_is_refused(estimator):
    with pytest.raises(ValueError, match="2 rewards but 1 groups"):
        estimator([0.0, 1.0], "a")
    with pytest.raises(ValueError, match="1 trajectories but 2 tasks"):
        trloo([[1.0]], "ab")


def test_the_constants_are_those_of_the_formula():
    assert pytest.approx(math.log(2)) == advantages.ENTROPIC_KL
