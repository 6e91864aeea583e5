"""The policy as the search talks to it: asked ahead where it can be, waited for, and counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait

from evaluator.types import Frozen, Task
from policy.ensemble import EnsemblePolicy
from policy.policy import AsyncPolicy, HearingPolicy, Policy
from policy.types import ParentView, Proposal, ProposalRequest

POLL_S = 0.1
"""Longest time until Ctrl-C is noticed while answers are awaited."""

Answers = list[list[Proposal]]
Span = tuple[float, float]
"""Start and end, in seconds of the run."""


class WaitInterruptedError(Exception):
    """Ctrl-C came while answers were awaited. Nothing was changed; the same requests can be made again."""


class Asked(Frozen):
    """What was asked of the policy for one batch."""

    seconds: float = 0.0
    """Time the campaign stood still for answers."""
    requests: int = 0
    answered: int = 0
    """Requests with at least one proposal."""
    spans: tuple[Span, ...] = ()
    """When each round of requests was sent and when the last of its answers was there."""


class Asking:
    """Sends requests to a policy and collects the answers.

    `ahead` allows an `AsyncPolicy` to be asked before its answers are needed. `interrupted` is looked at while the
    answers of an `AsyncPolicy` are awaited. `clock` gives the seconds of the run.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        ahead: bool = True,
        interrupted: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._later = policy if isinstance(policy, AsyncPolicy) else None
        self._interrupted = interrupted
        self._clock = clock
        self._asked = Asked()
        self.hears = isinstance(policy, HearingPolicy)
        """Whether the policy wants to know how candidates were judged."""
        self._sent: dict[Future[Answers], float] = {}
        self._done: dict[Future[Answers], float] = {}
        self._ensemble = policy if isinstance(policy, EnsemblePolicy) else None
        self.ahead = ahead and self._later is not None
        """Whether requests can be sent before their answers are needed."""

    @property
    def members(self) -> tuple[str, ...]:
        """Names of those who can be asked: numbered for an ensemble, whose members may share a name."""
        if self._ensemble is None:
            return (self._policy.name,)
        return tuple(f"{number} {member.name}" for number, member in enumerate(self._ensemble.members, start=1))

    def member_for(self, request: ProposalRequest) -> int:
        """Place in `members` of the one that answers a request."""
        return 0 if self._ensemble is None else self._ensemble.member_for(request)

    def submit(self, requests: Sequence[ProposalRequest]) -> Future[Answers]:
        """Send requests without waiting; only where `ahead` is True."""
        assert self._later is not None
        self._sent.clear()
        self._done.clear()
        at = self._clock()
        future = self._later.submit(requests)
        self._sent[future] = at
        future.add_done_callback(self._note)
        return future

    def _note(self, done: Future[Answers]) -> None:
        self._done[done] = self._clock()

    def propose(self, requests: Sequence[ProposalRequest], sent: Future[Answers] | None = None) -> Answers:
        """The answers, from `sent` where the requests went out earlier. Raises WaitInterruptedError."""
        started = self._clock()
        if sent is None and self._later is None:
            answers = self._policy.propose(requests)
            span = (started, self._clock())
        else:
            future = self.submit(requests) if sent is None else sent
            answers = self._collect(future)
            now = self._clock()
            # Who waits for a future may learn of its end before those who are called back.
            span = (self._sent.get(future, started), self._done.get(future, now))
        self._asked = Asked(
            seconds=self._asked.seconds + self._clock() - started,
            requests=self._asked.requests + len(requests),
            answered=self._asked.answered + sum(map(bool, answers)),
            spans=(*self._asked.spans, span),
        )
        return answers

    def _collect(self, sent: Future[Answers]) -> Answers:
        while not wait([sent], timeout=POLL_S).done:
            if self._interrupted():
                sent.cancel()
                raise WaitInterruptedError
        return sent.result()

    def tell(self, task: Task, judged: Sequence[ParentView]) -> None:
        """Let a policy that listens know how candidates were judged."""
        if isinstance(self._policy, HearingPolicy):
            self._policy.hear(task, judged)

    def take_asked(self) -> Asked:
        """What was asked since the last call."""
        asked, self._asked = self._asked, Asked()
        return asked
