"""The playbook: what operators and rewrites earned, by what bound the parent, for a task family on a GPU.

A run writes one when it ends, the playbook it was given included, so that knowledge adds up from campaign to campaign.
The next campaign reads it as priors of the rule policy and as notes in prompts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, ValidationError

from evaluator.errors import UsageError
from evaluator.types import Frozen, Task, TimingKind
from evo.bandit import Expectation
from evo.candidate import Record
from evo.run import Run

if TYPE_CHECKING:
    from evo.report.data import Credit

FILE = "playbook.json"
GIVEN = "playbook.given.json"
"""A run's copy of the playbook that it began with: a resumed run reads the same one."""

CAUTION = 4.0
"""Tries of average worth that every prior is mixed with, so that one lucky try does not make a favourite."""
LIMITS = (0.25, 4.0)
"""Least and most that a prior changes a weight by."""
BEST_NOTES = 6
WORST_NOTES = 3
WORTHLESS_TRIES = 5
"""Tries without a gain after which a note advises against a rewrite."""


class Entry(Frozen):
    """What an operator or a rewrite earned in one context."""

    family: str
    """The task's family, or its name where it has none."""
    hardware: str
    kind: TimingKind
    context: str
    """What bound the parent: dram, l2, tensor, issue, latency, launch, or unknown."""
    what: Literal["operator", "rewrite"]
    """A child counts for its operator and for each rewrite that made it."""
    name: str
    """Of the operator (`tune`, `rewrite` …) or of the rewrite in the catalogue."""
    tried: int = Field(ge=0)
    correct: int = Field(ge=0)
    better: int = Field(ge=0)
    """Correct and faster than both parent and baseline."""
    credit: float = Field(ge=0)
    """Sum over the better ones of log(speedup / max(parent, baseline))."""
    best_gain: float = Field(ge=1)

    @property
    def place(self) -> tuple[str, ...]:
        """Entries of one place are added up."""
        return (self.family, self.hardware, self.kind, self.context, self.what, self.name)

    def plus(self, other: Entry) -> Entry:
        """Both together."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in ("tried", "correct", "better", "credit")}
        return self.model_copy(update={**sums, "best_gain": max(self.best_gain, other.best_gain)})


class Playbook(Frozen):
    """Entries, the most credited first."""

    schema_version: int = 1
    runs: tuple[str, ...] = ()
    """Names of the runs it was learned from."""
    entries: tuple[Entry, ...] = ()

    @classmethod
    def load(cls, path: str | Path) -> Playbook:
        """Read a playbook, or that of a run's folder. Raises UsageError when there is none that can be read."""
        file = Path(path) / FILE if Path(path).is_dir() else Path(path)
        try:
            found = cls.model_validate_json(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(
                f"{file}: {error.strerror}", f"give a {FILE}, or the folder of a finished run, which holds one"
            ) from None
        except (ValidationError, UnicodeDecodeError):
            raise UsageError(
                f"{file}: no playbook of this version of Kernevo", "let `kernevo resume RUN` write that run's again"
            ) from None
        if found.schema_version != 1:
            raise UsageError(f"{file}: a playbook of version {found.schema_version}, not 1", "use a newer Kernevo")
        return found

    def plus(self, other: Playbook) -> Playbook:
        """Both together."""
        found: dict[tuple[str, ...], Entry] = {}
        for entry in (*self.entries, *other.entries):
            known = found.get(entry.place)
            found[entry.place] = entry if known is None else known.plus(entry)
        ranked = sorted(found.values(), key=lambda entry: (-entry.credit, -entry.tried, entry.place))
        return Playbook(runs=tuple(dict.fromkeys((*self.runs, *other.runs))), entries=tuple(ranked))

    def about(self, family: str, target: str, kind: TimingKind) -> list[Entry]:
        """Entries for a task's family on a GPU; `target` is a short name such as `h200`. Kinds never mix."""
        return [
            entry
            for entry in self.entries
            if entry.family == family and target.lower() in entry.hardware.lower() and entry.kind == kind
        ]


def of_run(run: Run) -> Playbook:
    """What one run teaches; empty where nothing passed."""
    from evo.report.data import by_operator, by_rewrite, credits_by

    records = run.records()
    judged = Counter((one.evaluation.target, one.evaluation.kind) for one in records if one.passed)
    if not judged:
        return Playbook()
    ((hardware, kind), _), *_ = judged.most_common(1)
    assert kind is not None
    by_id = {record.id: record for record in records}
    entries = []
    for context, group in sorted(_by_context(records, by_id).items()):
        place = {"family": family_of(run.task), "hardware": hardware, "kind": kind, "context": context}
        found = {"operator": by_operator(group), "rewrite": by_rewrite(group, by_id)}
        entries += [
            _entry(credit, what=what, **place) for what, named in found.items() for credit in credits_by(named, by_id)
        ]
    return Playbook(runs=(run.name,)).plus(Playbook(entries=tuple(entries)))


def _entry(credit: Credit, **place: str) -> Entry:
    sums = {"tried": credit.tried, "correct": credit.correct, "better": credit.better, "credit": credit.total}
    return Entry.model_validate({**place, **sums, "name": credit.name, "best_gain": credit.best_gain})


def _by_context(records: Iterable[Record], by_id: Mapping[str, Record]) -> dict[str, list[Record]]:
    """Children by what bound their first parent."""
    found: dict[str, list[Record]] = {}
    for record in records:
        parents = [by_id[parent] for parent in record.candidate.parent_ids if parent in by_id]
        if parents:
            profile = parents[0].evaluation.profile
            found.setdefault((profile.bottleneck if profile else "") or "unknown", []).append(record)
    return found


def family_of(task: Task) -> str:
    """What the playbook files a task under."""
    return task.family or task.name


def write(run: Run) -> Path:
    """Write the playbook of a run, with the one that it was given; returns the path."""
    given = run.path / GIVEN
    known = Playbook.load(given) if given.is_file() else Playbook()
    path = run.path / FILE
    run.dir.write_atomically(path, known.plus(of_run(run)).model_dump_json(indent=2) + "\n")
    return path


def priors(entries: Iterable[Entry]) -> dict[str, dict[str, float]]:
    """Context -> rewrite -> factor on its weight; under `""` for contexts that are not listed.

    The factor is a rewrite's mean credit per try over that of all, each mixed with `CAUTION` tries of the average.
    """
    listed = [entry for entry in entries if entry.what == "rewrite"]
    mean = math.fsum(entry.credit for entry in listed) / max(1, sum(entry.tried for entry in listed))
    if mean <= 0:
        return {}
    found: dict[str, dict[str, tuple[float, int]]] = {}
    for entry in listed:
        for context in (entry.context, ""):
            credit, tried = found.setdefault(context, {}).get(entry.name, (0.0, 0))
            found[context][entry.name] = (credit + entry.credit, tried + entry.tried)
    return {
        context: {name: _factor(credit, tried, mean) for name, (credit, tried) in sums.items()}
        for context, sums in found.items()
    }


def expectations(entries: Iterable[Entry]) -> dict[str, Expectation]:
    """Operator -> what the bandit may expect of it, over all contexts; never more than `CAUTION` tries' worth."""
    found: dict[str, Entry] = {}
    for entry in entries:
        if entry.what == "operator" and entry.tried > 0:
            known = found.get(entry.name)
            found[entry.name] = entry if known is None else known.plus(entry)
    return {
        name: Expectation(min(entry.tried, CAUTION), entry.credit / entry.tried, math.log(entry.best_gain))
        for name, entry in found.items()
    }


def _factor(credit: float, tried: int, mean: float) -> float:
    return min(max((credit + CAUTION * mean) / ((tried + CAUTION) * mean), LIMITS[0]), LIMITS[1])


def notes(entries: Iterable[Entry]) -> list[str]:
    """What a prompt says of it: what earned most, and what never earned anything."""
    rewrites = [entry for entry in entries if entry.what == "rewrite"]
    ranked = sorted(rewrites, key=lambda entry: (-entry.credit, -entry.tried, entry.place))
    worthless = [entry for entry in ranked if entry.better == 0 and entry.tried >= WORTHLESS_TRIES]
    return [
        f"{entry.name}, parent bound by {entry.context}: faster in {entry.better} of {entry.tried} tries, "
        f"at best {entry.best_gain:.2f}x ({entry.kind}, {entry.hardware})"
        for entry in [entry for entry in ranked if entry.better][:BEST_NOTES]
    ] + [
        f"{entry.name}, parent bound by {entry.context}: not faster in any of {entry.tried} tries"
        for entry in worthless[:WORST_NOTES]
    ]
