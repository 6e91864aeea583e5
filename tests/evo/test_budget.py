"""A campaign stops for the reason its budget gives."""

from __future__ import annotations

import pytest

from evo.budget import Progress, reason_to_stop
from evo.config import BudgetConfig

START = Progress(evaluations=0, generations=0, seconds=0.0, best_speedup=None, generations_without_gain=0)


@pytest.mark.parametrize(
    ("key", "limit", "below", "at"),
    [
        ("evaluations", 10, {"evaluations": 9}, {"evaluations": 10}),
        ("generations", 3, {"generations": 2}, {"generations": 3}),
        ("seconds", 5.0, {"seconds": 4.9}, {"seconds": 5.0}),
        ("target_speedup", 1.5, {"best_speedup": 1.49}, {"best_speedup": 1.5}),
        ("stagnation", 4, {"generations_without_gain": 3}, {"generations_without_gain": 4}),
    ],
)
def test_each_stopper_fires_at_its_limit_and_not_before(key, limit, below, at):
    budget = BudgetConfig.model_validate({key: limit})
    fields = START.__dict__
    assert reason_to_stop(budget, Progress(**{**fields, **below})) is None
    assert reason_to_stop(budget, Progress(**{**fields, **at})) == key


def test_without_a_correct_candidate_no_target_is_reached():
    assert reason_to_stop(BudgetConfig(target_speedup=1.0), START) is None


def test_a_reached_target_is_named_before_a_spent_budget():
    done = Progress(evaluations=10, generations=1, seconds=1.0, best_speedup=2.0, generations_without_gain=0)
    assert reason_to_stop(BudgetConfig(evaluations=10, target_speedup=1.5), done) == "target_speedup"
