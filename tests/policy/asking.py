"""A policy on a fake server, for tests that ask it."""

from __future__ import annotations

from evaluator.task import load_task
from evaluator.types import KernelSource
from policy.model_children import Workshop
from policy.model_policy import ModelSettings
from policy.openai_client import OpenAISettings
from policy.openai_policy import OpenAIPolicy
from policy.types import ParentView, ProposalRequest
from tests.policy.fake_server import MODEL, FakeServer

TASK = load_task("softmax")
SEED = TASK.seed_source


def request(seed: int = 0, **changes) -> ProposalRequest:
    parent = ParentView(candidate_id="c000000", source=KernelSource(text=SEED))
    made = ProposalRequest(request_id="r", task=TASK, parents=(parent,), operator="rewrite", seed=seed)
    return made.model_copy(update=changes)


def policy_for(fake: FakeServer, /, *, form="structured", rewrites=None, tools=None, **settings) -> OpenAIPolicy:
    """A policy without retries, so that no test waits for a backoff."""
    mine = {name: settings.pop(name) for name in list(settings) if name in ModelSettings.__dataclass_fields__}
    where = OpenAISettings(**{"model": MODEL, "base_url": fake.url, "retries": 0, "timeout_s": 60.0, **settings})
    return OpenAIPolicy(where, ModelSettings(**mine), Workshop(form, rewrites=rewrites), tools=tools)
