"""What a format is, and what formats share: picks, column types, Arrow-safe values."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evaluator.types import Task
from policy.types import Message, Turn

if TYPE_CHECKING:
    from policy.exports.tally import Tally

Row = dict[str, Any]
Feature = str | list[Any] | dict[str, Any]
"""Type of a column: `string`, `float64`, `int64`, `bool`, `COMPONENTS`; `[type]` is a list, `{name: type}` a struct."""

MESSAGES: Feature = [{"role": "string", "content": "string"}]
COMPONENTS = "components"
"""A struct of float64, one field for each reward component in the export."""


@dataclass(frozen=True)
class Options:
    """What the user asked for."""

    min_gain: float = 0.05
    """SFT keeps, and KTO likes, steps that are at least this much faster than their parent."""
    per_lineage: int = 8
    """SFT keeps at most this many steps of one lineage, the largest gains first."""
    tasks: Mapping[str, Task] = field(default_factory=dict)
    """Run -> its task; formats whose trainer has new answers judged put it into their rows."""


@dataclass(frozen=True)
class Pick:
    """The turns of one row, by their place in what is exported, and what was computed for it."""

    places: tuple[int, ...]
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Selection:
    """The rows that a format makes, in order, and why it leaves out the other turns."""

    picks: list[Pick] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def keep(self, *places: int, **values: Any) -> None:
        """Make a row of the turns at `places`."""
        self.picks.append(Pick(places, values))


@dataclass(frozen=True)
class Format:
    """One export format: which turns it keeps, and how a row is made of them."""

    name: str
    about: str
    """One sentence for the dataset card."""
    features: Mapping[str, Feature]
    """Column -> type, in order."""
    select: Callable[[Sequence[Turn], Options], Selection]
    row: Callable[[Sequence[Turn], Pick, Options], Row]
    """A row of its turns."""
    empty_hint: str
    """What to do when nothing is selected."""
    notes: Callable[[Tally], list[str]] = lambda tally: []
    """Warnings that belong in the card."""
    files: Callable[[Tally], Mapping[str, str]] = lambda tally: {}
    """Name -> content of files beside the data."""
    compares_rewards: bool = False
    """Whether rewards of different turns meet, so that all must follow one formula."""
    needs_logprobs: bool = False
    """Whether each answer's probability under the policy that gave it must be known."""
    needs_task: bool = False
    """Whether rows hold the task, for a trainer that has new answers judged."""
    needs_parquet: bool = False
    """Whether the trainer reads nothing else."""


def messages(turn: Turn) -> list[Row]:
    """The prompt as the list of {role, content} that chat templates need: a plain string would skip the template."""
    return [chat(message) for message in turn.messages]


def chat(message: Message) -> Row:
    """One message as a row."""
    return {"role": message.role, "content": text(message.content)}


def answer(turn: Turn) -> Row:
    """The answer as a message."""
    return {"role": "assistant", "content": text(turn.answer)}


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
        "turn": turn.turn,
        "candidate_id": turn.candidate_id,
        "parent_id": turn.parent_ids[0] if turn.parent_ids else None,
        "lineage": turn.lineage,
        "operator": turn.operator,
        "island": turn.island,
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
    "turn": "int64",
    "candidate_id": "string",
    "parent_id": "string",
    "lineage": "string",
    "operator": "string",
    "island": "int64",
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
