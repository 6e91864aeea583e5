"""How the elites came to be: each step with its rewrites, its gain and what it changed in the source."""

from __future__ import annotations

from dataclasses import dataclass

from evaluator.errors import KernevoError
from evo.candidate import Record
from evo.report.diff import Diff, side_by_side
from evo.report.text import clip
from evo.run import Run


@dataclass(frozen=True)
class Step:
    """One candidate of a lineage, compared with its parent."""

    record: Record
    parent: Record | None
    rewrites: tuple[str, ...]
    """What this step applied, arguments included; empty for a seed or a tuned config."""
    config_changes: tuple[str, ...]
    diff: Diff | None
    prompt: tuple[tuple[str, str], ...]
    answer: str
    problem: str = ""
    """Why the source cannot be shown."""

    @property
    def gain(self) -> float | None:
        """Speedup over the parent; None when either has none."""
        speedup = self.record.speedup
        before = self.parent.speedup if self.parent else None
        return speedup / before if speedup and before else None


@dataclass(frozen=True)
class Branch:
    """The steps of one elite that no better elite's lineage has already shown."""

    elite: Record
    rank: int
    joins: str | None
    """Id of the already shown ancestor it grows from; None for the best."""
    steps: tuple[Step, ...]


def branches(run: Run, elites: list[Record]) -> list[Branch]:
    """The lineages of `elites`, best first, shared ancestors shown once."""
    shown: set[str] = set()
    found = []
    for rank, elite in enumerate(elites, start=1):
        line = run.lineage(elite.id)
        fresh = [index for index, record in enumerate(line) if record.id not in shown]
        steps = tuple(_step(run, line, index) for index in fresh)
        joins = line[fresh[0] - 1].id if fresh and fresh[0] > 0 else None if fresh else elite.id
        found.append(Branch(elite, rank, joins, steps))
        shown |= {record.id for record in line}
    return found


def source_text(run: Run, sha: str) -> tuple[str, str]:
    """A source and an empty problem, or no source and what is wrong with its file."""
    try:
        return run.source(sha).text, ""
    except KernevoError as error:
        return "", error.message


def _step(run: Run, line: list[Record], index: int) -> Step:
    record = line[index]
    parent = line[index - 1] if index else None
    new, problem = source_text(run, record.candidate.source_sha)
    old, old_problem = source_text(run, parent.candidate.source_sha) if parent else ("", "")
    known = len(parent.candidate.rewrites) if parent else 0
    rewrites = record.candidate.rewrites[known:]
    return Step(
        record=record,
        parent=parent,
        rewrites=tuple(
            f"{step.name}({', '.join(f'{name}={value}' for name, value in step.args.items())})" for step in rewrites
        ),
        config_changes=_config_changes(parent, record) if parent else (),
        diff=side_by_side(old, new) if parent and not (problem or old_problem) else None,
        prompt=tuple((message.role, clip(message.content)) for message in record.candidate.messages),
        answer=clip(record.candidate.answer),
        problem=problem or old_problem,
    )


def _config_changes(parent: Record, child: Record) -> tuple[str, ...]:
    before, after = parent.candidate.config, child.candidate.config
    return tuple(
        f"{name}: {before[name]} → {value}" for name, value in after.items() if name in before and before[name] != value
    )
