"""Which earlier attempts a prompt shows, and the store that keeps every attempt outside of the prompt."""

from __future__ import annotations

from pathlib import Path

from policy.reward import RewardSettings
from policy.types import ParentView, ProposalRequest

WIDTH = 4


class AttemptStore:
    """Every judged attempt on a task, in memory or in a JSONL file."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._attempts: dict[str, list[ParentView]] = {}

    def add(self, key: str, attempt: ParentView) -> None:
        """Store one judged attempt under `key` (a task's fingerprint)."""
        self._attempts.setdefault(key, []).append(attempt)

    def attempts(self, key: str) -> tuple[ParentView, ...]:
        """Everything stored under `key`, earliest first."""
        return tuple(self._attempts.get(key, ()))


def with_context(
    request: ProposalRequest,
    *,
    store: AttemptStore | None = None,
    width: int = WIDTH,
    reward: RewardSettings | None = None,
) -> ProposalRequest:
    """The request with only those attempts that its prompt shows, best first."""
    known = request.attempts + (store.attempts(request.task.fingerprint) if store else ())
    return request.model_copy(update={"attempts": known[:width]})
