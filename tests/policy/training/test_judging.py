from __future__ import annotations

import pytest

from evaluator.errors import UsageError
from evaluator.types import EvalStatus
from policy.reward import RewardSettings
from policy.training.data import Prompt
from policy.training.judging import Judge, Judged, shares
from tests.policy.training import world


def judge(answers, *statuses, prompt=world.PROMPT):
    evaluator = world.LengthJudge(*statuses)
    found = Judge({"softmax": evaluator}).judge([(prompt, answer, False) for answer in answers])
    return found, evaluator


def test_a_good_answer_is_rewarded_by_its_speed():
    (found,), _ = judge(world.answers()[:1])
    assert found.correct
    assert found.speedup == pytest.approx(2 * len(world.SEED) / len(world.child(world.answers()[0])))
    assert found.reward > 0.3


def test_what_cannot_be_read_earns_the_reward_of_an_unparsable_answer_and_no_evaluation():
    found, evaluator = judge(["no JSON", '{"steps":[{"name":"none_such","args":{}}]}'])
    assert [one.reward for one in found] == [-0.4, -0.4]
    assert evaluator.judged == []


def test_the_unchanged_parent_earns_less_than_a_failure():
    prompt = Prompt("softmax", world.PROMPT.messages, world.SEED, "full")
    (found,), _ = judge([f"```python\n{world.SEED}```"], prompt=prompt)
    assert found.reward == -0.3


@pytest.mark.parametrize(("status", "reward"), [(EvalStatus.WRONG_VALUE, -0.1), (EvalStatus.FALLBACK, -0.5)])
def test_failures_and_hacks_are_negative(status, reward):
    (found,), _ = judge(world.answers()[:1], status)
    assert found.reward == reward
    assert found.hack == status.is_hack


def test_nothing_is_known_of_an_answer_that_our_own_harness_failed_on():
    (found,), _ = judge(world.answers()[:1], EvalStatus.HARNESS_ERROR)
    assert found.reward is None
    assert found.program is not None


def test_a_source_is_judged_once_in_a_batch_and_once_for_all_batches():
    evaluator = world.LengthJudge()
    judge = Judge({"softmax": evaluator})
    asked = [(world.PROMPT, answer, False) for answer in (world.answers()[0], world.answers()[0], world.answers()[1])]
    first = judge.judge(asked)
    assert judge.judge(asked) == first
    assert len(evaluator.judged) == 2


def test_a_task_without_an_evaluator_is_named():
    with pytest.raises(UsageError, match="nobody judges task softmax"):
        Judge({}).judge([(world.PROMPT, world.answers()[0], False)])


def test_the_configured_reward_is_used():
    judge = Judge({"softmax": world.LengthJudge()}, RewardSettings(type="profile"))
    (found,) = judge.judge([(world.PROMPT, world.answers()[0], False)])
    assert found.reward == pytest.approx(1 + found.speedup)


def test_shares_of_a_batch_by_hand():
    judged = [
        Judged(1.0, "a", correct=True, speedup=1.3),
        Judged(0.5, "b", correct=True, speedup=1.1),
        Judged(-0.4),
        Judged(-0.4),
        Judged(-0.5, "a", hack=True),
        Judged(None, "c"),
    ]
    assert shares(judged, 2) == pytest.approx(
        {
            "valid": 4 / 6,
            "correct": 2 / 6,
            "fast@1": 2 / 6,
            "fast@1.2": 1 / 6,
            "hack_rate": 1 / 6,
            "zero_variance": 1 / 3,
            "mean_reward": 0.2 / 5,
            "unique_ast": 3 / 4,
        }
    )
