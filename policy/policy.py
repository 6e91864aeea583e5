"""The policy protocol: from requests to proposals."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol, runtime_checkable

from evaluator.types import Task
from policy.types import ParentView, Proposal, ProposalRequest


class Policy(Protocol):
    """Proposes children.

    `propose` answers every request with zero to `count` proposals, in order; it never raises for a bad answer
    of its own (an answer that cannot be used is simply missing) and never evaluates anything. A policy whose
    `deterministic` is True returns the same proposals for the same requests in any process.
    """

    @property
    def name(self) -> str:
        """Short stable name; stored with every proposal."""
        ...

    @property
    def deterministic(self) -> bool:
        """Whether the answers depend on the requests alone."""
        ...

    def propose(self, requests: Sequence[ProposalRequest]) -> list[list[Proposal]]:
        """Children for each request, in the order of the requests."""
        ...

    def close(self) -> None:
        """Release servers and files; safe to call twice."""
        ...


@runtime_checkable
class AsyncPolicy(Policy, Protocol):
    """A policy that can be asked before its answers are needed, so that judging goes on while it thinks.

    `submit` returns at once. The future gives what `propose` would have returned, or raises what it would have
    raised; cancelling it asks the policy to drop the requests, `close` drops all that are open.
    """

    def submit(self, requests: Sequence[ProposalRequest]) -> Future[list[list[Proposal]]]:
        """The children for each request, later."""
        ...


@runtime_checkable
class HearingPolicy(Policy, Protocol):
    """A policy that is told what became of candidates, whoever made them."""

    def hear(self, task: Task, judged: Sequence[ParentView]) -> None:
        """Candidates of one generation with their verdicts.

        Called when the generation ends, and once more for each generation of a run that is resumed.
        """
        ...
