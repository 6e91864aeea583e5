"""Conformance suite for policies: a new policy's tests subclass `PolicyTestCase` and supply `make_policy`.

Plain asserts, so that pytest collects it; it needs nothing but the policy.
"""

from __future__ import annotations

import ast
import json
from abc import ABC, abstractmethod

from evaluator.source_hash import ast_hash
from evaluator.syntax import parse
from evaluator.task import load_task
from evaluator.types import KernelSource
from policy.policy import Policy
from policy.rewrites import RewriteContext, apply_steps
from policy.types import ParentView, Proposal, ProposalRequest, RewriteStep


class PolicyTestCase(ABC):
    """What every policy must do. Subclasses are collected as `class TestMyPolicy(PolicyTestCase)`."""

    task_names: tuple[str, ...] = ("softmax", "matmul")

    @abstractmethod
    def make_policy(self) -> Policy:
        """A fresh policy."""

    def policy_names(self) -> set[str]:
        """The names that proposals may carry: the policy's own, unless it asks others."""
        return {self.make_policy().name}

    def request(
        self, task_name: str = "softmax", *, seed: int = 0, count: int = 2, **changes: object
    ) -> ProposalRequest:
        """A request for children of a shipped task's seed."""
        task = load_task(task_name)
        assert task.seed_source is not None
        parent = ParentView(candidate_id="c000000", source=KernelSource(text=task.seed_source))
        request = ProposalRequest(
            request_id=f"{task_name}-{seed}", task=task, parents=(parent,), operator="rewrite", seed=seed, count=count
        )
        return request.model_copy(update=changes)

    def requests(self) -> list[ProposalRequest]:
        """A few requests on several tasks."""
        return [self.request(name, seed=seed) for name in self.task_names for seed in range(3)]

    def answers(self) -> list[tuple[ProposalRequest, Proposal]]:
        """Every proposal for `requests`, each with its request."""
        policy = self.make_policy()
        requests = self.requests()
        answers = policy.propose(requests)
        policy.close()
        return [(r, proposal) for r, given in zip(requests, answers, strict=True) for proposal in given]

    def test_every_request_gets_at_most_what_it_asked_for(self) -> None:
        """One list per request, never longer than `count`; no request, no list."""
        policy = self.make_policy()
        requests = self.requests()
        answers = policy.propose(requests)
        assert len(answers) == len(requests)
        assert all(len(given) <= request.count for request, given in zip(requests, answers, strict=True))
        assert any(answers)
        assert policy.propose([]) == []

    def test_children_are_programs_with_an_entry_point(self) -> None:
        """Each child parses, defines ModelNew, and says who made it and why."""
        for request, proposal in self.answers():
            tree = parse(proposal.source.text)
            assert any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in tree.body)
            assert proposal.operator == request.operator
            assert proposal.policy in self.policy_names()
            assert proposal.explanation

    def test_children_differ_from_their_parent_from_each_other_and_from_what_is_taken(self) -> None:
        """No child is a program that the search already knows."""
        policy = self.make_policy()
        first = [p.source.text for p in policy.propose([self.request(seed=5)])[0]]
        taken = frozenset(ast_hash(text) for text in first)
        again = [p.source.text for p in policy.propose([self.request(seed=5, taken=taken)])[0]]
        parent = self.request().parents[0].source.text
        programs = [ast_hash(text) for text in (parent, *first, *again)]
        assert len(set(programs)) == len(programs)

    def test_the_rewrites_of_a_child_lead_from_the_parent_to_the_child(self) -> None:
        """Replaying a proposal's rewrites, or its structured answer, gives its source."""
        for request, proposal in self.answers():
            if not proposal.rewrites:
                continue
            parent, context = request.parents[0].source.text, RewriteContext.of_task(request.task)
            assert apply_steps(parent, proposal.rewrites, context) == proposal.source.text
            told = [RewriteStep.model_validate(step) for step in json.loads(proposal.answer)["steps"]]
            assert apply_steps(parent, told, context) == proposal.source.text

    def test_children_of_one_parent_share_one_prompt(self) -> None:
        """A group for learning is children of one parent under one identical prompt."""
        policy = self.make_policy()
        children = [p for given in policy.propose([self.request(seed=s) for s in range(3)]) for p in given]
        assert len({child.messages for child in children}) == 1
        assert [message.role for message in children[0].messages] == ["system", "user"]

    def test_a_parent_that_does_not_parse_has_no_children(self) -> None:
        """A broken parent is nothing to raise about."""
        broken = ParentView(candidate_id="c000001", source=KernelSource(text="def broken(:\n"))
        assert self.make_policy().propose([self.request(parents=(broken,))]) == [[]]

    def test_a_deterministic_policy_answers_alike_whatever_it_was_asked_before(self) -> None:
        """Same requests, same proposals: in another instance, in another order, alone or in a batch."""
        policy = self.make_policy()
        if not policy.deterministic:
            return
        requests = self.requests()
        batch = policy.propose(requests)
        alone = [self.make_policy().propose([request])[0] for request in reversed(requests)]
        assert batch == list(reversed(alone))

    def test_closing_twice_is_safe(self) -> None:
        """`close` may be called again."""
        policy = self.make_policy()
        policy.close()
        policy.close()
