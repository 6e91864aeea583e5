"""A run as data: what `status`, `harvest`, `export`, `report` and notebooks read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from evaluator.errors import UsageError
from evaluator.types import KernelSource, Task
from evo import events, journal
from evo.candidate import Candidate, Record
from evo.config import CampaignConfig
from evo.finalists import Finals, Rounds, settled
from evo.run_dir import RunDir

RunStatus = Literal["running", "finished", "interrupted", "crashed"]


class Run:
    """One run directory, read from its journal. Reading never writes and works beside a living campaign."""

    def __init__(self, path: Path, history: list[journal.Line]) -> None:
        self.path = path
        self.dir = RunDir(path)
        self._events = history

    @classmethod
    def load(cls, path: str | Path) -> Run:
        """Read a run. Raises UsageError when the folder holds none, JournalError when its journal is damaged."""
        history = [line for line, _ in journal.lines(existing(Path(path)).journal)]
        return cls(Path(path), history)

    @cached_property
    def config(self) -> CampaignConfig:
        """The resolved config of the run."""
        return read_config(self.dir)

    @cached_property
    def environment(self) -> Mapping[str, Any]:
        """Versions and hardware of the first session; empty when the file is gone."""
        return read_environment(self.dir)

    @cached_property
    def task(self) -> Task:
        """The task, loaded anew. Raises TaskError when it is gone."""
        from evaluator.task import load_task

        return load_task(self.config.task)

    @cached_property
    def started(self) -> events.Started:
        """The journal's first line."""
        if not self._events:
            raise UsageError(f"{self.dir.journal}: empty", "start the run again under another name")
        return self._parsed(events.Started, self._events[0])

    @property
    def name(self) -> str:
        """The run's name: its folder's."""
        return self.path.resolve().name

    @cached_property
    def _candidates(self) -> dict[str, Candidate]:
        found: dict[str, Candidate] = {}
        for event in self._events:
            if event.kind == events.BATCH:
                batch = self._parsed(events.Batch, event)
                found.update({candidate.id: candidate for candidate in batch.candidates})
        return found

    @cached_property
    def _records(self) -> dict[str, Record]:
        found: dict[str, Record] = {}
        for event in self._events:
            if event.kind == events.EVALUATED:
                judged = self._parsed(events.Evaluated, event)
                candidate = self._candidates[judged.candidate]
                found[candidate.id] = Record(candidate=candidate, evaluation=judged.evaluation)
        return found

    def _parsed(self, model: type[journal.ModelT], line: journal.Line) -> journal.ModelT:
        return line.parsed(model, self.dir.journal)

    def records(self) -> list[Record]:
        """Every judged candidate in the order of birth."""
        return list(self._records.values())

    candidates = records

    def record(self, candidate_id: str) -> Record:
        """One judged candidate. Raises UsageError for an id the run does not hold, naming the nearest one."""
        try:
            return self._records[candidate_id]
        except KeyError:
            pass
        if candidate_id in self._candidates:
            raise UsageError(f"{self.path}: candidate {candidate_id} is not judged yet", "wait, or resume the run")
        raise UsageError(f"{self.path}: no candidate {candidate_id}", self._nearest(candidate_id))

    def _nearest(self, candidate_id: str) -> str:
        records = self.records()
        digits = candidate_id.removeprefix("c")
        if not records:
            return "nothing is judged yet"
        if not (digits.isascii() and digits.isdecimal()):
            return f"ids are {records[0].id} to {records[-1].id}"
        return f"the nearest is {min(records, key=lambda record: abs(record.number - int(digits))).id}"

    def elites(self, count: int | None = None) -> list[Record]:
        """The best record of each structure that passed, best first; ties go to the older one.

        Where finalists were timed again they come first, with their middle round as their evaluation.
        """
        best: dict[str, Record] = {}
        for record in settled(self.records(), self._rounds):
            best.setdefault(record.candidate.structure, record)
        return list(best.values())[:count]

    @cached_property
    def _rounds(self) -> Rounds:
        """What finalists were timed again, once all of them were: before, some would stand above others unfairly."""
        finals = Finals(self.config.finalists)
        for event in self._events:
            if event.kind == events.RETIMED:
                finals.add(self._parsed(events.Retimed, event))
        return finals.rounds if any(event.kind == events.FINALISTS for event in self._events) else {}

    def lineage(self, candidate_id: str) -> list[Record]:
        """The record and its first parents, the seed first."""
        line = [self.record(candidate_id)]
        while line[-1].candidate.parent_ids:
            line.append(self.record(line[-1].candidate.parent_ids[0]))
        return line[::-1]

    def source(self, sha: str) -> KernelSource:
        """A stored source by its SHA-256."""
        return self.dir.source(sha)

    def generations(self) -> list[events.GenerationEnd]:
        """The end of every finished generation."""
        return [self._parsed(events.GenerationEnd, e) for e in self._events if e.kind == events.GENERATION]

    def learned(self) -> list[events.Learned]:
        """What came of each training of the policy."""
        return [self._parsed(events.Learned, e) for e in self._events if e.kind == events.LEARNED]

    def spent(self) -> list[events.Spent]:
        """What the policy cost, for one that keeps count."""
        return [self._parsed(events.Spent, e) for e in self._events if e.kind == events.SPENT]

    def sessions(self) -> list[events.Session]:
        """Begin and end of every session."""
        return [self._parsed(events.Session, e) for e in self._events if e.kind == events.SESSION]

    @property
    def status(self) -> RunStatus:
        """Whether the run is running, finished, interrupted (and can be resumed) or crashed (likewise)."""
        sessions = self.sessions()
        last = sessions[-1] if sessions else None
        if last is not None and last.event == "end":
            return "interrupted" if last.reason == "interrupted" else "finished"
        return "running" if self.dir.in_use else "crashed"


def existing(path: Path) -> RunDir:
    """The files of a run. Raises UsageError when the folder holds none."""
    run_dir = RunDir(path)
    if not run_dir.journal.is_file() or not run_dir.config_resolved.is_file():
        raise UsageError(f"{path}: holds no run (no journal.jsonl)", "kernevo status lists the runs there are")
    return run_dir


def read_environment(run_dir: RunDir) -> Mapping[str, Any]:
    """Versions and hardware of a run's first session; empty when the file is gone."""
    try:
        facts: dict[str, Any] = json.loads(run_dir.environment.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return {}
    return facts


def read_config(run_dir: RunDir) -> CampaignConfig:
    """The resolved config of a run. Raises UsageError naming the file when it cannot be read."""
    from pydantic import ValidationError

    try:
        return CampaignConfig.model_validate_json(run_dir.config_resolved.read_text(encoding="utf-8"), strict=True)
    except (OSError, ValidationError) as error:
        raise UsageError(f"{run_dir.config_resolved}: {error}", "restore the file from a copy") from error
