"""The Pareto front of correct candidates: nobody is better at one thing without being worse at another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from deap import base, tools

from evaluator.types import Evaluation, geometric_mean
from evo.candidate import Record

CHUNK = 64
"""Records that are sorted at once with the front so far: sorting takes time by the square."""


def _energy(evaluation: Evaluation) -> float | None:
    values = [timing.energy_mj for timing in evaluation.timings.values()]
    known = [value for value in values if value is not None and value > 0]
    return geometric_mean(known) if len(known) == len(values) else None


# All are minimised.
COSTS: Mapping[str, Callable[[Evaluation], float | None]] = {
    "latency_ms": lambda evaluation: evaluation.latency_ms,
    "energy_mj": _energy,
    "registers": lambda evaluation: evaluation.profile.registers if evaluation.profile else None,
    "shared_bytes": lambda evaluation: evaluation.profile.shared_bytes if evaluation.profile else None,
    "max_error": lambda evaluation: evaluation.max_error,
}


class _Costs(base.Fitness):  # type: ignore[misc]  # DEAP has no types
    weights = (-1.0,) * len(COSTS)


class _Member:
    """A record with the fitness that DEAP sorts by."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.order = (record.evaluation.latency_ms, record.number)
        # What nobody measured counts as the worst: it can make no candidate better than another.
        known = costs(record).values()
        self.fitness = _Costs([math.inf if value is None or math.isnan(value) else value for value in known])


def costs(record: Record) -> dict[str, float | None]:
    """What a correct candidate takes, by the names of `COSTS`; None where its evaluation does not say."""
    return {name: cost(record.evaluation) for name, cost in COSTS.items()}


class Front:
    """The front of everything it was told of."""

    def __init__(self) -> None:
        self._members: list[_Member] = []

    def add(self, records: Iterable[Record]) -> None:
        """Tell of more candidates; failed ones are passed over."""
        waiting = [_Member(record) for record in records if record.passed]
        for start in range(0, len(waiting), CHUNK):
            # Most are dominated by a member, which is quicker to see than to sort.
            more = [one for one in waiting[start : start + CHUNK] if not self._dominates(one)]
            if more:
                pool = [*self._members, *more]
                self._members = tools.sortNondominated(pool, len(pool), first_front_only=True)[0]

    def _dominates(self, one: _Member) -> bool:
        return any(member.fitness.dominates(one.fitness) for member in self._members)

    @property
    def records(self) -> list[Record]:
        """The fastest first."""
        return [member.record for member in sorted(self._members, key=lambda member: member.order)]


def front(records: Iterable[Record]) -> list[Record]:
    """The correct candidates that no other dominates, the fastest first."""
    found = Front()
    found.add(records)
    return found.records
