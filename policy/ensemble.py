"""Several policies as one: each request goes to one of them, drawn by weight with the request's own seed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from evaluator.errors import UsageError
from evaluator.types import Task
from policy.policy import HearingPolicy, Policy
from policy.summary import summary_of
from policy.types import ParentView, Proposal, ProposalRequest

_STREAM = 0x656E73
"""Beside the seed, so that a member that uses the same seed draws other numbers."""


class EnsemblePolicy:
    """Divides requests among `members`, (policy, weight) each. Proposals name the member that made them.

    A draw depends on the request's seed alone, so it is the same after a resume. Raises UsageError for no members or
    a weight that is not above 0.
    """

    name = "ensemble"

    def __init__(self, members: Sequence[tuple[Policy, float]]) -> None:
        if not members:
            raise UsageError("an ensemble has no members", "list at least one policy")
        if not all(weight > 0 for _, weight in members):
            raise UsageError("the weight of a policy is not above 0", "leave the policy out instead")
        self.members = tuple(policy for policy, _ in members)
        total = sum(weight for _, weight in members)
        self._shares = [weight / total for _, weight in members]
        self._worker: ThreadPoolExecutor | None = None

    @property
    def deterministic(self) -> bool:
        """Whether all members are."""
        return all(member.deterministic for member in self.members)

    def member_for(self, request: ProposalRequest) -> int:
        """Index of the member that answers a request: the one it names, else drawn by weight."""
        if request.member is not None:
            return request.member
        rng = np.random.default_rng((request.seed, _STREAM))
        return int(rng.choice(len(self.members), p=self._shares))

    def propose(self, requests: Sequence[ProposalRequest]) -> list[list[Proposal]]:
        """Children for each request. Members that answer on their own are asked first, so that all work at once."""
        chosen = [self.member_for(request) for request in requests]
        parts = {
            index: [request for request, owner in zip(requests, chosen, strict=True) if owner == index]
            for index in sorted(set(chosen))
        }
        started = {index: start(self.members[index], part) for index, part in parts.items()}
        waiting = {index: future for index, future in started.items() if future is not None}
        answers = {index: iter(self.members[index].propose(parts[index])) for index in parts if index not in waiting}
        answers |= {index: iter(future.result()) for index, future in waiting.items()}
        return [next(answers[index]) for index in chosen]

    def submit(self, requests: Sequence[ProposalRequest]) -> Future[list[list[Proposal]]]:
        """Like `propose`, without waiting: the future holds what `propose` would return or raise."""
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="kernevo-ensemble")
        return self._worker.submit(self.propose, list(requests))

    def hear(self, task: Task, judged: Sequence[ParentView]) -> None:
        """Tell the members that listen."""
        for member in self.members:
            if isinstance(member, HearingPolicy):
                member.hear(task, judged)

    def summary(self) -> dict[str, Any]:
        """Name -> summary of each member that keeps one."""
        found: dict[str, Any] = {}
        for number, member in enumerate(self.members, start=1):
            if (told := summary_of(member)) is not None:
                found[f"{number} {member.name}"] = told
        return found

    def close(self) -> None:
        """Close every member; safe to call twice."""
        for member in self.members:
            member.close()
        if self._worker is not None:
            self._worker.shutdown(cancel_futures=True)
            self._worker = None


def start(policy: Policy, requests: Sequence[ProposalRequest]) -> Future[list[list[Proposal]]] | None:
    """What `submit` of a policy returns; None for a policy that has none."""
    submit = getattr(policy, "submit", None)
    if submit is None:
        return None
    future: Future[list[list[Proposal]]] = submit(requests)
    return future
