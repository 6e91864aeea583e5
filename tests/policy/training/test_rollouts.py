from __future__ import annotations

import random

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from evaluator.errors import UsageError
from policy.training.rollouts import RecordedAnswers, chains_of, recorded_advantages, shuffled
from tests.policy.training import world

LOGPROBS = {"logprobs": (-1.0, -2.0), "answer_token_ids": (5, 6), "prompt_token_ids": (1, 2, 3)}


def test_recorded_answers_without_logprobs_are_refused_in_one_line():
    with pytest.raises(UsageError, match="6 of 6 recorded answers have no log-probabilities"):
        RecordedAnswers(world.settings(answers="recorded"), world.turns(), None)


def test_each_recorded_answer_is_given_in_its_turn_with_what_it_was_sampled_with():
    turns = world.turns(3, **LOGPROBS)
    recorded = RecordedAnswers(world.settings(answers="recorded"), turns, None)
    rollout = recorded.answer([0, 0, 1, 1], None, 8)
    assert rollout.items == [0, 1, 2, 2]
    assert rollout.prompts[0] == [1, 2, 3]
    assert rollout.logprobs[0] == [-1.0, -2.0]
    assert recorded.rewards(rollout, [], []) == [0.1, 0.2, 0.3, 0.3]


def test_recorded_advantages_compare_all_answers_of_a_group():
    turns = world.turns(3)
    made = recorded_advantages(world.settings(method="grpo"), turns, [0.0, 3.0, 6.0])
    assert made == pytest.approx([-3, 0, 3])
    assert recorded_advantages(world.settings(method="trloo"), turns, [0.0, 3.0, 6.0]) == pytest.approx([-4.5, 0, 4.5])


def test_a_chain_follows_the_child_of_the_turn_before_and_takes_its_reward_along():
    first, other, second, third = world.turns(4)
    second = second.model_copy(update={"turn": 1, "parent_ids": (first.candidate_id,)})
    third = third.model_copy(update={"turn": 1, "parent_ids": (other.candidate_id,)})
    turns = [first, other, second, third]
    assert chains_of(turns) == [[0, 2], [1, 3]]
    # Returns of turn 0: 1 + 0.5 * 4 and 2 + 0.5 * 0; of turn 1: 4 and 0.
    made = recorded_advantages(world.settings(method="trloo", gamma=0.5), turns, [1.0, 2.0, 4.0, 0.0])
    assert made == pytest.approx([1, -1, 4, -4])


def test_two_turns_after_one_do_not_share_its_chain():
    first, second, third = world.turns(3)
    after = {"turn": 1, "parent_ids": (first.candidate_id,)}
    turns = [first, second.model_copy(update=after), third.model_copy(update=after)]
    assert chains_of(turns) == [[0, 1], [2]]


def test_shuffling_keeps_each_groups_rewards_within_it():
    rewards = [1.0, 2.0, 3.0, None, 5.0, 6.0]
    found = shuffled(rewards, 3, random.Random(1))
    assert set(found[:3]) == {1.0, 2.0, 3.0}
    assert set(found[3:]) == {None, 5.0, 6.0}
    assert found != rewards
