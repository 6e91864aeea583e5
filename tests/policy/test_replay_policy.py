"""Recorded answers come back: to the same parent, in the order of birth, each once."""

from __future__ import annotations

import pytest

from evaluator.errors import KernevoError
from evaluator.source_hash import ast_hash
from evaluator.types import KernelSource
from policy.replay_policy import ReplayPolicy
from policy.rule_policy import RulePolicy
from policy.testing import PolicyTestCase
from policy.trajectory import JudgedChild, RunMeta, encode, turns_of
from policy.types import ParentView
from tests.policy.turns import evaluation, turn


def recorded(case):
    """Turns of a run in which the rule policy was asked for children of each task's seed."""
    turns = []
    for task in case.task_names:
        request = case.request(task, seed=8, count=8)
        children = [
            JudgedChild(
                candidate_id=f"c{number:06d}",
                parent_ids=("c000000",),
                generation=1,
                operator="rewrite",
                source=proposal.source.text,
                parent_source=request.parents[0].source.text,
                messages=proposal.messages,
                answer=proposal.answer,
                evaluation=evaluation(proposal.source.text),
            )
            for number, proposal in enumerate(RulePolicy().propose([request])[0], start=1)
        ]
        turns += turns_of(children, RunMeta(run="r", task=task))
    return turns


class TestReplayPolicy(PolicyTestCase):
    turns = None

    def make_policy(self):
        if TestReplayPolicy.turns is None:
            TestReplayPolicy.turns = recorded(self)
        return ReplayPolicy(TestReplayPolicy.turns)


CASE = TestReplayPolicy()


def asked(policy, text="x = 0\n", **changes):
    parent = ParentView(candidate_id="c000007", source=KernelSource(text=text))
    return policy.propose([CASE.request(parents=(parent,), **changes)])[0]


def child(number, **changes):
    source = f"x = {number}\n"
    given = {"source": source, "ast_hash": ast_hash(source), "parent_source": "x = 0\n"}
    return turn(number, **{**given, **changes})


def test_structured_answers_keep_their_rewrites():
    assert any(proposal.rewrites for _, proposal in CASE.answers())


def test_each_answer_is_given_once_and_in_the_order_of_birth():
    policy = ReplayPolicy([child(3), child(1), child(2)])
    assert [p.source.text for p in asked(policy)] == ["x = 1\n", "x = 2\n"]
    assert [p.source.text for p in asked(policy)] == ["x = 3\n"]
    assert asked(policy) == []


def test_a_parent_is_known_by_its_program_whatever_its_comments():
    policy = ReplayPolicy([child(1)])
    assert asked(policy, "x = 5\n") == []
    assert [p.source.text for p in asked(policy, "x = 0  # start\n")] == ["x = 1\n"]


def test_answers_of_another_operator_are_not_given():
    assert asked(ReplayPolicy([child(1)]), operator="crossover") == []


def test_what_the_run_has_already_is_passed_over():
    policy = ReplayPolicy([child(1), child(2)])
    taken = frozenset({ast_hash("x = 1\n")})
    assert [p.source.text for p in asked(policy, taken=taken)] == ["x = 2\n"]


def test_a_proposal_says_who_gave_the_answer_and_keeps_its_tokens():
    given = child(1, policy="openai", policy_version="m1", sampling={"temperature": 0.5}, answer_token_ids=(4, 5))
    (proposal,) = asked(ReplayPolicy([given]))
    assert (proposal.policy, proposal.policy_version) == ("replay", "openai m1")
    assert proposal.sampling == {"temperature": 0.5, "answer_token_ids": [4, 5]}
    assert (proposal.messages, proposal.answer) == (given.messages, given.answer)
    assert given.run in proposal.explanation


@pytest.mark.parametrize("answer", ["no JSON", "[]", "{}", '{"steps": 3}', '{"steps": [{"name": "no_such"}]}'])
def test_an_answer_that_is_not_structured_has_no_rewrites(answer):
    (proposal,) = asked(ReplayPolicy([child(1, answer=answer)]))
    assert proposal.rewrites == ()


def test_a_trajectory_file_is_replayed_and_a_missing_one_named(tmp_path):
    path = tmp_path / "trajectories.jsonl"
    path.write_bytes(encode(child(1)))
    assert [p.source.text for p in asked(ReplayPolicy.from_file(path))] == ["x = 1\n"]
    with pytest.raises(KernevoError, match=r"none\.jsonl"):
        ReplayPolicy.from_file(tmp_path / "none.jsonl")
