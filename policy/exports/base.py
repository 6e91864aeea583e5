"""What a format is, and what formats share: the choice of turns and Arrow-safe values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from policy.types import Message, Turn

Row = dict[str, Any]
Feature = Literal["string", "float64", "int64", "bool", "messages", "components"]
"""Kind of a column; `components` is a struct of float64, one field for each reward component in the export."""


@dataclass(frozen=True)
class Options:
    """What the user asked for."""

    min_gain: float = 0.05
    """SFT keeps steps that are at least this much faster than their parent."""
    per_lineage: int = 8
    """SFT keeps at most this many steps of one lineage, the largest gains first."""


@dataclass(frozen=True)
class Format:
    """One export format: which turns it keeps, and how a row is made of a turn."""

    name: str
    about: str
    """One sentence for the dataset card."""
    features: Mapping[str, Feature]
    """Column -> kind, in order."""
    select: Callable[[Sequence[Turn], Options], list[Turn]]
    row: Callable[[Turn], Row]
    empty_hint: str
    """What to do when nothing is selected."""
    notes: Callable[[Sequence[Turn]], list[str]]
    """Warnings that belong in the card."""


def messages(turn: Turn) -> list[Row]:
    """The prompt as the list of {role, content} that chat templates need: a plain string would skip the template."""
    return [chat(message) for message in turn.messages]


def chat(message: Message) -> Row:
    """One message as a row."""
    return {"role": message.role, "content": text(message.content)}


def text(value: str) -> str:
    r"""Text that UTF-8 can hold: unpaired surrogates become their escapes (`\ud800`), all else stays."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def number(value: float | None) -> float | None:
    """A finite number, else None: JSON has no NaN, and a trainer must not meet one."""
    return None if value is None or not math.isfinite(value) else float(value)


def provenance(turn: Turn) -> Row:
    """Columns that say where a row comes from; every format carries them."""
    return {
        "task": turn.task,
        "split": turn.split,
        "run": turn.run,
        "group": turn.group,
        "candidate_id": turn.candidate_id,
        "parent_id": turn.parent_ids[0] if turn.parent_ids else None,
        "lineage": turn.lineage,
        "operator": turn.operator,
        "generation": turn.generation,
        "policy": turn.policy,
        "policy_version": turn.policy_version,
        "status": turn.status,
        "timing_kind": turn.timing_kind,
        "target": turn.target,
        "speedup": number(turn.speedup),
        "parent_speedup": number(turn.parent_speedup),
        "reward": number(turn.reward),
    }


PROVENANCE: dict[str, Feature] = {
    "task": "string",
    "split": "string",
    "run": "string",
    "group": "string",
    "candidate_id": "string",
    "parent_id": "string",
    "lineage": "string",
    "operator": "string",
    "generation": "int64",
    "policy": "string",
    "policy_version": "string",
    "status": "string",
    "timing_kind": "string",
    "target": "string",
    "speedup": "float64",
    "parent_speedup": "float64",
    "reward": "float64",
}


def as_json(value: Mapping[str, Any]) -> str:
    """A free-form mapping as JSON text: its keys differ from row to row, which a typed table cannot hold."""
    return json.dumps(dict(value), sort_keys=True, default=str)


def component_names(turns: Iterable[Turn]) -> list[str]:
    """Every reward component that occurs, in alphabetical order."""
    return sorted({name for turn in turns for name in turn.reward_components})
