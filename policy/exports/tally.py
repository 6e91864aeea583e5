"""Counts over turns, taken while they pass by."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from policy.types import Turn


class Tally:
    """What a dataset card and the checks before an export need to know; a few words for each distinct value."""

    def __init__(self) -> None:
        self.turns = 0
        self.rewards = array("d")
        self.facts: dict[str, Counter[str]] = {
            name: Counter()
            for name in (
                "tasks",
                "splits",
                "timings",
                "statuses",
                "runs",
                "targets",
                "policies",
                "operators",
                "versions",
            )
        }
        self.components: set[str] = set()
        self.groups: set[tuple[str, str]] = set()
        self.held_out: set[str] = set()
        self.reward_types: dict[str, str] = {}
        """Formula -> a run that used it."""
        self.without_logprobs = 0
        self.importance_gaps: dict[str, Counter[str]] = {}
        """Run -> what its turns lack for importance-corrected training, "" for nothing -> turns."""
        self.values: Counter[tuple[str, Any]] = Counter()
        """(name, value) -> rows, of the truth values that a format computed."""
        self.judges: Counter[tuple[str, str]] = Counter()
        """(kind of timing, target) -> turns."""

    def add(self, turn: Turn) -> None:
        """Count one turn."""
        self.turns += 1
        self.rewards.append(turn.reward)
        for name, value in _facts(turn):
            self.facts[name][value] += 1
        self.facts["versions"].update(f"{name} {value}" for name, value in turn.versions.items())
        self.components.update(turn.reward_components)
        self.groups.add((turn.run, turn.group))
        if turn.split == "held_out":
            self.held_out.add(turn.task)
        self.reward_types.setdefault(turn.reward_type, turn.run)
        self.without_logprobs += turn.logprobs is None
        self.importance_gaps.setdefault(turn.run, Counter())[turn.importance_gap] += 1
        if turn.timing_kind:
            self.judges[turn.timing_kind, turn.target] += 1

    def add_values(self, values: Mapping[str, Any]) -> None:
        """Count what was computed for a row."""
        self.values.update((name, value) for name, value in values.items() if isinstance(value, bool))

    @property
    def modelled(self) -> int:
        """Turns with modelled timings."""
        return self.facts["timings"]["modelled"]


def _facts(turn: Turn) -> Iterable[tuple[str, str]]:
    return (
        ("tasks", turn.task),
        ("splits", turn.split),
        ("timings", turn.timing_kind or "none (failed)"),
        ("statuses", turn.status),
        ("runs", turn.run),
        ("targets", turn.target or "unknown"),
        ("policies", f"{turn.policy} {turn.policy_version}"),
        ("operators", turn.operator),
    )
