"""What a run has spent so far: GPU seconds, tokens and dollars.

GPU seconds follow from the verdicts in the journal. Tokens and dollars are the policy's own count, which ends with its
process: what was added since the last line is journalled, and the lines of all sessions are summed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from evaluator.types import EvalStatus, Evaluation
from evo.config_budget import BudgetConfig
from evo.events import Spent

OFFLINE = frozenset({"static", "compile", "smoke"})
"""Stages of the gpu evaluator that use no GPU."""


def gpu_seconds(evaluation: Evaluation) -> float:
    """Seconds that one candidate's stages on a GPU took, waiting for it included; 0 for what used none."""
    if evaluation.evaluator != "gpu" or evaluation.cached or evaluation.status is EvalStatus.DUPLICATE:
        return 0.0
    return math.fsum(stage.seconds for stage in evaluation.stages if stage.name not in OFFLINE)


def counted(summary: Mapping[str, Any] | None) -> tuple[int, float]:
    """(tokens, dollars) of a policy's summary; an ensemble's members are summed."""
    if not summary:
        return 0, 0.0
    tokens = int(summary.get("prompt_tokens", 0)) + int(summary.get("completion_tokens", 0))
    dollars = float(summary.get("dollars", 0.0))
    for member in summary.values():
        if isinstance(member, Mapping):
            more = counted(member)
            tokens, dollars = tokens + more[0], dollars + more[1]
    return tokens, dollars


class Spending:
    """Sums of all sessions of a run. Changed by `judged` and `add`, both fed by journal events."""

    def __init__(self) -> None:
        self.gpu_seconds = 0.0
        self.tokens = 0
        self.dollars = 0.0
        self._session = (0, 0.0)

    def all_spent(self, budget: BudgetConfig) -> bool:
        """Whether nothing may be asked of the policy any more."""
        return self.tokens >= (budget.tokens or math.inf) or self.dollars >= (budget.dollars or math.inf)

    def judged(self, evaluation: Evaluation) -> None:
        """A verdict was recorded."""
        self.gpu_seconds += gpu_seconds(evaluation)

    def add(self, spent: Spent) -> None:
        """A `spent` line was recorded."""
        self.tokens += spent.tokens
        self.dollars += spent.dollars

    def news(self, summary: Mapping[str, Any] | None, seconds: float) -> Spent | None:
        """What the policy of this session has spent since the last call; None where that is nothing."""
        tokens, dollars = counted(summary)
        before, self._session = self._session, (tokens, dollars)
        if self._session == before:
            return None
        return Spent(tokens=tokens - before[0], dollars=dollars - before[1], seconds=seconds)
