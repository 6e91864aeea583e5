"""A campaign in a process of its own, for tests that kill it.

`python -m tests.evo.driver RUN start|resume [POLICY]`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from evo.campaign import Campaign
from evo.config import CampaignConfig
from evo.run import Run
from policy.rule_policy import RulePolicy
from tests.evo import fakes


def config(evaluations: int = 60, split: str = "train") -> CampaignConfig:
    """Small batches, so that generations end often."""
    return CampaignConfig.model_validate(
        {
            "task": "softmax",
            "split": split,
            "seed": 11,
            "budget": {"evaluations": evaluations},
            "search": {"population": 6, "offspring": 5},
            "monitors": ("jsonl",),
        }
    )


POLICIES = {
    "fake": fakes.FakePolicy,
    "rule": RulePolicy,
    "async": fakes.AsyncFakePolicy,
    "async_rule": fakes.AsyncRulePolicy,
}


def campaign(path: Path, mode: str, pause: float = 0.0, policy: str = "fake", split: str = "train") -> Campaign:
    """A new or resumed campaign with the fake judge and a policy of `POLICIES`."""
    parts = {"evaluator": fakes.FakeEvaluator(pause), "policy": POLICIES[policy]()}
    made = Campaign(config(split=split), path, **parts) if mode == "start" else Campaign.resume(path, **parts)
    made.task = fakes.task()
    return made


def searched(path: Path, chosen: CampaignConfig, policy: str = "rule") -> Run:
    """A finished run of another config."""
    running = campaign(path, "start", policy=policy)
    running.config = chosen
    running.run()
    return Run.load(path)


if __name__ == "__main__":
    outcome = campaign(Path(sys.argv[1]), sys.argv[2], 0.01, *sys.argv[3:]).run()
    print(outcome.stopped, flush=True)
    sys.exit(130 if outcome.interrupted else 0)
