"""Finalists: the best candidates are timed again in turn before any of them is called an elite.

The best of many noisy measurements is rarely the best kernel: it is the one that was lucky. So the finalists go through
several rounds, each of which times all of them one after the other, and count by their middle round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from evaluator.protocol import Evaluator, Retimer
from evaluator.types import Evaluation, EvaluationJob, KernelSource
from evo.candidate import Record
from evo.config_budget import FinalistsConfig
from evo.events import Finalists, Retimed

Rounds = Mapping[str, Sequence[Evaluation]]
"""Candidate id -> verdicts of its rounds, in order."""


class Finals:
    """The rounds of one run. Changed by `add` alone, which journal events feed."""

    def __init__(self, config: FinalistsConfig) -> None:
        self._config = config
        self.rounds: dict[str, list[Evaluation]] = {}
        self.over = False
        """Whether all finalists had their rounds."""

    def due(self, best: Record | None, evaluator: Evaluator) -> Retimer | None:
        """Who can time the finalists; None where that was done, is switched off, or nothing is measured."""
        if self.over or self._config.count == 0 or best is None or best.evaluation.kind != "measured":
            return None
        return evaluator if isinstance(evaluator, Retimer) else None

    def add(self, retimed: Retimed) -> None:
        """One finalist was timed once more."""
        self.rounds.setdefault(retimed.candidate, []).append(retimed.evaluation)

    def next_round(self, records: Sequence[Record]) -> list[Record]:
        """Who is timed next, the best first; empty when all finalists had their rounds.

        A finalist that fails is replaced by the next best candidate, which then has rounds of its own.
        """
        standing = [record for record in records if not failed(self.rounds.get(record.id, ()))]
        open_ = {
            record.id: len(self.rounds.get(record.id, ()))
            for record in finalists(standing, self._config.count)
            if len(self.rounds.get(record.id, ())) < self._config.rounds
        }
        fewest = min(open_.values(), default=0)
        return [record for record in records if open_.get(record.id) == fewest]

    def play(
        self,
        records: Sequence[Record],
        evaluator: Retimer,
        source: Callable[[str], KernelSource],
        journal: Callable[[Retimed], object],
        interrupted: Callable[[], bool],
    ) -> bool:
        """Time finalists until all had their rounds; False when interrupted. Each verdict is journalled first."""
        while contenders := self.next_round(records):
            jobs = (
                EvaluationJob(job_id=record.id, source=source(record.candidate.source_sha))
                for record in contenders
                if not interrupted()
            )
            for job, evaluation in evaluator.retime(jobs):
                retimed = Retimed(candidate=job.job_id, evaluation=evaluation)
                journal(retimed)
                self.add(retimed)
            if interrupted():
                return False
        return True

    def result(self, records: Sequence[Record], seconds: float) -> Finalists:
        """What came of it."""
        best = next(iter(settled(records, self.rounds)), None)
        return Finalists(
            timed=tuple(self.rounds),
            best=best.id if best else None,
            best_speedup=best.speedup if best else None,
            best_before=max((record.speedup or 0.0 for record in records), default=0.0),
            seconds=seconds,
        )


def finalists(records: Iterable[Record], count: int) -> list[Record]:
    """The best of each structure, best first, then the next best of any structure; `count` at most."""
    ranked = sorted((one for one in records if one.speedup is not None), key=lambda one: -(one.speedup or 0.0))
    leaders = {one.candidate.structure: one.id for one in reversed(ranked)}
    first = [one for one in ranked if leaders[one.candidate.structure] == one.id]
    others = [one for one in ranked if leaders[one.candidate.structure] != one.id]
    return [*first, *others][:count]


def failed(rounds: Sequence[Evaluation]) -> bool:
    """Whether a round found fault with the candidate; our own machinery's failures are not its fault."""
    return any(not one.status.passed and not one.status.blames_harness for one in rounds)


def middle(rounds: Sequence[Evaluation]) -> Evaluation | None:
    """The passed round with the median speedup, the lower one of two; None where none passed."""
    passed = sorted((one for one in rounds if one.speedup is not None), key=lambda one: one.speedup or 0.0)
    return passed[(len(passed) - 1) // 2] if passed else None


def settled(records: Iterable[Record], rounds: Rounds) -> list[Record]:
    """Correct records, best first: those timed again by their middle round, all others behind them; ties by age.

    Whoever failed a round is left out.
    """
    again: list[Record] = []
    rest: list[Record] = []
    for record in records:
        played = rounds.get(record.id, ())
        if not record.passed or failed(played):
            continue
        evaluation = middle(played)
        if evaluation is None:
            rest.append(record)
        else:
            again.append(record.model_copy(update={"evaluation": evaluation}))
    return [*_ranked(again), *_ranked(rest)]


def _ranked(records: list[Record]) -> list[Record]:
    return sorted(records, key=lambda record: record.speedup or 0.0, reverse=True)
