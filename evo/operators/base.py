"""What every operator reads and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from evaluator.types import KernelSource, Task
from evo.archive import Archive, Cell
from evo.candidate import Ancestor, Record
from evo.islands import Islands
from evo.novelty import NoveltyGate
from evo.selection import Family
from evo.streams import Streams
from evo.tuning import Tuner
from policy.types import ParentView, Proposal


@dataclass(frozen=True)
class Draft:
    """A child before it has an id."""

    source: KernelSource
    operator: str
    parents: tuple[Ancestor, ...]
    structure: str
    config: Mapping[str, int] = field(default_factory=dict)
    proposal: Proposal | None = None
    island: int = 0
    arm: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A candidate that failed, and its first parent."""

    base: Record
    record: Record


class SearchView(Protocol):
    """The scheduler's state as operators see it. They read it and never change it."""

    task: Task
    streams: Streams
    islands: Islands
    archive: Archive
    tuner: Tuner
    gate: NoveltyGate
    family: Family

    @property
    def failures(self) -> Sequence[Failure]:
        """What failed of late in finished generations, in the order of birth."""
        ...

    def source(self, sha: str) -> str:
        """Text of a stored source."""
        ...

    def children(self, candidate_id: str) -> Sequence[Record]:
        """The latest judged children of a candidate in the order of birth."""
        ...

    def cell(self, record: Record) -> Cell:
        """Where in the archive a passed candidate belongs."""
        ...


class Variation(Protocol):
    """An operator that makes children of what was judged without asking a policy: an arm of its own."""

    name: str

    def possible(self, view: SearchView) -> bool:
        """Whether there is anything that it could work on."""
        ...

    def propose(self, view: SearchView, generation: int, count: int, pending: Iterable[str] = ()) -> list[Draft]:
        """Up to `count` new drafts; `pending` holds programs (normalised AST hashes) of the same batch."""
        ...


def shown(read: Callable[[str], str], record: Record) -> ParentView:
    """A judged candidate as policies see it; `read` gives the text of a stored source."""
    return ParentView(
        candidate_id=record.id,
        source=KernelSource(text=read(record.candidate.source_sha)),
        evaluation=record.evaluation,
        rewrites=record.candidate.rewrites,
    )
