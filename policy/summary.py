"""What a policy has asked and what came of it, for policies that keep count (`summary`)."""

from __future__ import annotations

from typing import Any

from policy.policy import Policy


def summary_of(policy: Policy) -> dict[str, Any] | None:
    """What `summary` of a policy returns; None for a policy that keeps none."""
    summary = getattr(policy, "summary", None)
    if summary is None:
        return None
    told: dict[str, Any] = summary()
    return told
