"""Fixtures of the policy tests."""

from __future__ import annotations

import pytest

from tests.policy.asking import policy_for, request


@pytest.fixture
def ask():
    """Make a policy for a server, ask it, close it: `ask(server, request, …)` -> proposals, summary."""

    def call(fake, /, *requests, **settings):
        policy = policy_for(fake, **settings)
        try:
            answers = policy.propose(requests or [request()])
        finally:
            policy.close()
        return [proposal for given in answers for proposal in given], policy.summary()

    return call
