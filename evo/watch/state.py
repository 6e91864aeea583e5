"""What a watcher knows of a run: sums, folded from the journal line by line, so that news cost little in a long run."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from evaluator.types import EvalStatus, Frozen
from evo import events
from evo.candidate import Candidate, Record
from evo.config import CampaignConfig
from evo.journal import Follower
from evo.run import RunStatus, existing, read_config
from evo.spending import Spending

LATEST = 8
"""Candidates that are shown one by one."""


@dataclass
class Earned:
    """What an operator has come to."""

    tried: int = 0
    correct: int = 0
    best: float | None = None
    """Speedup of its best."""


@dataclass
class State:
    """Everything that is shown."""

    started: events.Started | None = None
    judged: int = 0
    correct: int = 0
    born: int = 0
    generations: int = 0
    cells: int = 0
    seconds: float = 0.0
    """Wall-clock seconds of the run up to the last line that says so."""
    verdicts: Counter[EvalStatus] = field(default_factory=Counter)
    operators: dict[str, Earned] = field(default_factory=dict)
    best: Record | None = None
    rise: list[tuple[int, float]] = field(default_factory=list)
    """(evaluations, best speedup) of every improvement."""
    latest: deque[Record] = field(default_factory=lambda: deque(maxlen=LATEST))
    spending: Spending = field(default_factory=Spending)
    finalists: events.Finalists | None = None
    trainings: int = 0
    last_session: events.Session | None = None


class Watcher:
    """A run's state, brought up to date by `refresh`. Reads only; no damage can come of it."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError where the folder holds no run."""
        self.dir = existing(path)
        self.state = State()
        self._follower = Follower(self.dir.journal)
        self._unjudged: dict[str, Candidate] = {}

    @cached_property
    def config(self) -> CampaignConfig:
        """The run's settings."""
        return read_config(self.dir)

    @property
    def status(self) -> RunStatus:
        """As `Run.status`."""
        last = self.state.last_session
        if last is not None and last.event == "end":
            return "interrupted" if last.reason == "interrupted" else "finished"
        return "running" if self.dir.in_use else "crashed"

    def refresh(self) -> int:
        """Take in what was written since the last call; the number of new lines. Raises JournalError."""
        count = 0
        for line in self._follower.news():
            count += 1
            event = events.parsed(line, self.dir.journal)
            if event is not None:
                self._take(event)
        return count

    def _take(self, event: Frozen) -> None:
        state = self.state
        state.seconds = max(state.seconds, getattr(event, "seconds", 0.0))
        match event:
            case events.Started():
                state.started = event
            case events.Batch():
                state.born += len(event.candidates)
                self._unjudged.update({candidate.id: candidate for candidate in event.candidates})
            case events.Evaluated():
                self._judged(Record(candidate=self._unjudged.pop(event.candidate), evaluation=event.evaluation))
            case events.GenerationEnd():
                state.generations += 1
                state.cells = len(event.archive)
            case events.Spent():
                state.spending.add(event)
            case events.Learned():
                state.trainings += 1
            case events.Finalists():
                state.finalists = event
            case events.Session():
                state.last_session = event

    def _judged(self, record: Record) -> None:
        state, speedup = self.state, record.speedup
        state.judged += 1
        state.correct += record.passed
        state.verdicts[record.evaluation.status] += 1
        state.latest.append(record)
        state.spending.judged(record.evaluation)
        earned = state.operators.setdefault(record.candidate.operator, Earned())
        earned.tried += 1
        earned.correct += record.passed
        if speedup is None:
            return
        earned.best = max(speedup, earned.best or 0.0)
        if state.best is None or speedup > (state.best.speedup or 0.0):
            state.best = record
            state.rise.append((state.judged, speedup))
