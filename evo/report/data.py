"""What the report shows, gathered from a run. Nothing here knows HTML."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from evaluator.errors import KernevoError
from evaluator.types import EvalStatus, Evaluation
from evo.candidate import Record
from evo.measures import DESCRIPTORS
from evo.pareto import front
from evo.playbook import Entry, of_run
from evo.report.cost import Cost, cost_of, judge_seconds
from evo.report.training import Training, trainings
from evo.run import Run

MAX_POINTS = 3000
"""Candidates drawn one by one; improvements are always among them."""


@dataclass(frozen=True)
class Point:
    """One correct candidate in the order of evaluation."""

    evaluation: int
    candidate_id: str
    speedup: float
    improves: bool
    spent_s: float = 0.0
    """Seconds of judging up to here, of a GPU where one judges."""


@dataclass(frozen=True)
class Stage:
    """One stage of the cascade over the whole run."""

    name: str
    reached: int
    stopped: Counter[str]
    """Verdict -> candidates that ended here with it."""


@dataclass(frozen=True)
class Verdict:
    """How often a verdict was given, with one example."""

    status: str
    count: int
    example: Record


@dataclass(frozen=True)
class Cell:
    """One archive cell and its owner."""

    words: tuple[str, ...]
    owner: Record


@dataclass
class Credit:
    """What an operator or a rewrite earned."""

    name: str
    tried: int = 0
    correct: int = 0
    better: int = 0
    """Correct and faster than both the parent and the baseline."""
    best_gain: float = 1.0
    """Largest speedup over max(parent, baseline)."""
    total: float = 0.0
    """Sum of max(0, log child - max(log parent, 0)): the credit of docs/search.md."""


@dataclass(frozen=True)
class Progress:
    """The best after a generation, by the clock."""

    seconds: float
    best_speedup: float | None


@dataclass(frozen=True)
class Findings:
    """Everything the page shows about the search as a whole."""

    points: list[Point]
    progress: list[Progress]
    stages: list[Stage]
    verdicts: list[Verdict]
    cells: list[Cell]
    front: list[Record]
    operators: list[Credit]
    rewrites: list[Credit]
    models: list[Credit]
    """By policy and its version, of candidates that answer a question."""
    trainings: list[Training]
    cost: Cost
    playbook: tuple[Entry, ...]
    judged: int
    correct: int
    cached: int
    descriptors: tuple[str, ...] = field(default=DESCRIPTORS)


def gather(run: Run) -> Findings:
    """Read a run once. Works on a running, finished, interrupted or crashed run, and on one without a candidate."""
    records = run.records()
    by_id = {record.id: record for record in records}
    return Findings(
        points=points(records),
        progress=[Progress(end.seconds, end.best_speedup) for end in run.generations()],
        stages=stages(record.evaluation for record in records),
        verdicts=verdicts(records),
        cells=_cells(run, by_id),
        front=front(records),
        operators=credits_by(by_operator(records), by_id),
        rewrites=credits_by(by_rewrite(records, by_id), by_id),
        models=credits_by(by_model(records), by_id),
        trainings=trainings(run),
        cost=cost_of(run, records),
        playbook=_learned(run),
        judged=len(records),
        correct=sum(record.passed for record in records),
        cached=sum(record.evaluation.cached for record in records),
    )


def _learned(run: Run) -> tuple[Entry, ...]:
    """What this run adds to the playbook; nothing where its task is gone, which the page says elsewhere."""
    try:
        return of_run(run).entries
    except KernevoError:
        return ()


def points(records: Iterable[Record]) -> list[Point]:
    """Correct candidates with a finite speedup, thinned to `MAX_POINTS` without losing an improvement."""
    found: list[Point] = []
    best, spent = 0.0, 0.0
    for number, record in enumerate(records, start=1):
        speedup = record.speedup
        spent += judge_seconds(record.evaluation)
        if speedup is None or not math.isfinite(speedup):
            continue
        found.append(Point(number, record.id, speedup, speedup > best, spent))
        best = max(best, speedup)
    stride = max(1, math.ceil(len(found) / MAX_POINTS))
    return [point for index, point in enumerate(found) if point.improves or index % stride == 0]


def stages(evaluations: Iterable[Evaluation]) -> list[Stage]:
    """The funnel: how many candidates reached each stage, and with which verdicts they ended there."""
    order: list[str] = []
    reached: Counter[str] = Counter()
    stopped: dict[str, Counter[str]] = {}
    for evaluation in evaluations:
        names = [stage.name for stage in evaluation.stages]
        _merge(order, names)
        reached.update(set(names))
        if not evaluation.status.passed and names:
            stopped.setdefault(names[-1], Counter())[str(evaluation.status)] += 1
    return [Stage(name, reached[name], stopped.get(name, Counter())) for name in order]


def _merge(order: list[str], names: list[str]) -> None:
    """Insert new stage names behind the one they followed."""
    position = 0
    for name in names:
        if name in order:
            position = order.index(name) + 1
        else:
            order.insert(position, name)
            position += 1


def verdicts(records: Iterable[Record]) -> list[Verdict]:
    """Counts by verdict, in the order of the cascade, each with its first example."""
    counts: Counter[EvalStatus] = Counter()
    examples: dict[EvalStatus, Record] = {}
    for record in records:
        counts[record.evaluation.status] += 1
        examples.setdefault(record.evaluation.status, record)
    return [Verdict(str(status), counts[status], examples[status]) for status in EvalStatus if counts[status]]


def _cells(run: Run, by_id: dict[str, Record]) -> list[Cell]:
    generations = run.generations()
    archive = generations[-1].archive if generations else {}
    cells = [Cell(tuple(cell.split("/")), by_id[owner]) for cell, owner in archive.items() if owner in by_id]
    return sorted(cells, key=lambda cell: -(cell.owner.speedup or 0.0))


def by_operator(records: Iterable[Record]) -> Iterator[tuple[str, Record]]:
    """Each record under its operator."""
    return ((record.candidate.operator, record) for record in records)


def by_model(records: Iterable[Record]) -> Iterator[tuple[str, Record]]:
    """Each record that answers a question, under the policy and version that answered."""
    for record in records:
        if record.candidate.answer:
            yield f"{record.candidate.policy} {record.candidate.policy_version}", record


def by_rewrite(records: Iterable[Record], by_id: dict[str, Record]) -> Iterator[tuple[str, Record]]:
    """Each record under every rewrite that it adds to its parent."""
    for record in records:
        parents = record.candidate.parent_ids
        known = len(by_id[parents[0]].candidate.rewrites) if parents and parents[0] in by_id else 0
        for name in dict.fromkeys(step.name for step in record.candidate.rewrites[known:]):
            yield name, record


def credits_by(named: Iterable[tuple[str, Record]], by_id: dict[str, Record]) -> list[Credit]:
    """Credit of each name over its records, the most credited first. A child of several rewrites credits each."""
    credit: dict[str, Credit] = {}
    for name, record in named:
        entry = credit.setdefault(name, Credit(name))
        entry.tried += 1
        entry.correct += record.passed
        if not record.candidate.parent_ids or not (speedup := record.speedup) or not math.isfinite(speedup):
            continue
        parents = [by_id[parent].speedup for parent in record.candidate.parent_ids if parent in by_id]
        gain = speedup / max(1.0, *(parent or 0.0 for parent in parents), 0.0)
        if gain > 1:
            entry.better += 1
            entry.best_gain = max(entry.best_gain, gain)
            entry.total += math.log(gain)
    return sorted(credit.values(), key=lambda entry: (-entry.total, -entry.tried, entry.name))
