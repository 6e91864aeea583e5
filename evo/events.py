"""The kinds of journal event and their data. State changes only by applying these, live and on resume alike."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from evaluator.types import Evaluation, Frozen, Split
from evo.candidate import Candidate
from evo.journal import Line

STARTED = "started"
BATCH = "batch"
EVALUATED = "evaluated"
GENERATION = "generation"
LEARNED = "learned"
SESSION = "session"
SPENT = "spent"
RETIMED = "retimed"
REMEASURED = "remeasured"
FINALISTS = "finalists"


class Started(Frozen):
    """First line of every journal."""

    journal_version: int = 1
    kernevo_version: str
    name: str
    task: str
    task_fingerprint: str
    split: Split = "train"
    seed: int
    config_fingerprint: str


class Batch(Frozen):
    """The candidates of one generation, before any of them is judged (their sources are already stored)."""

    generation: int
    candidates: tuple[Candidate, ...]
    asked: Mapping[str, int] = {}
    """Arm -> requests that the bandit gave it; some lead to no candidate."""


class Evaluated(Frozen):
    """One verdict."""

    candidate: str
    evaluation: Evaluation
    syntax: tuple[str, ...] = ()
    """Descriptors that were read from the source, of the first correct candidate of a structure."""


class IslandEnd(Frozen):
    """What one island was after a generation."""

    generation: int
    """Generations it has lived through."""
    members: tuple[str, ...]
    gained: int
    """Its generation when its best last improved."""
    restarts: int
    strategy: str
    best_speedup: float | None


class GenerationEnd(Frozen):
    """What the search knew after a generation; a resume recomputes it and must agree."""

    generation: int
    evaluations: int
    population: tuple[str, ...]
    archive: Mapping[str, str]
    """Cell -> candidate id."""
    islands: tuple[IslandEnd, ...] = ()
    """Where there are several."""
    best: str | None
    best_speedup: float | None
    stream: int
    """A draw of the search's random stream at this place: proves that a resumed run continues it."""
    seconds: float
    """Wall-clock seconds of the whole run so far, earlier sessions included."""


class Learned(Frozen):
    """The policy was trained before a generation began."""

    generation: int
    adapter: str
    """Folder under the run's `adapters`."""
    exit_code: int
    """Of the training; others than 0 left everything as it was."""
    kept: bool = False
    """Whether the policy uses the adapter from here on."""
    version: str = ""
    before: float | None = None
    """Mean reward of the probe without the adapter."""
    after: float | None = None
    took_s: float = 0.0
    seconds: float
    """Wall-clock seconds of the whole run so far."""


class Spent(Frozen):
    """What the policy cost since the line before, for policies that keep count."""

    tokens: int
    """Of prompts and answers."""
    dollars: float
    seconds: float
    """Wall-clock seconds of the whole run so far."""


class Retimed(Frozen):
    """A finalist was judged once more."""

    candidate: str
    evaluation: Evaluation


class Remeasured(Frozen):
    """An owner of a cell or a leader of an island was judged once more, between two generations."""

    candidate: str
    evaluation: Evaluation


class Finalists(Frozen):
    """All finalists had their rounds: elites are ranked by them from here on."""

    timed: tuple[str, ...]
    best: str | None
    best_speedup: float | None
    best_before: float
    """Speedup that the search had called the best."""
    seconds: float
    """Wall-clock seconds of the whole run so far."""


class Session(Frozen):
    """A process began or ended its work on the run."""

    event: Literal["begin", "end"]
    reason: str = ""
    seconds: float


MODELS: dict[str, type[Frozen]] = {
    STARTED: Started,
    BATCH: Batch,
    EVALUATED: Evaluated,
    GENERATION: GenerationEnd,
    LEARNED: Learned,
    SESSION: Session,
    SPENT: Spent,
    RETIMED: Retimed,
    REMEASURED: Remeasured,
    FINALISTS: Finalists,
}


def parsed(line: Line, path: Path) -> Frozen | None:
    """What a line of the journal at `path` says; None for a kind that this version does not know.

    Raises JournalError when another version of Kernevo wrote it.
    """
    model = MODELS.get(line.kind)
    return None if model is None else line.parsed(model, path)
