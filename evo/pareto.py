"""The Pareto front of correct candidates: nobody is better at one thing without being worse at another."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping

from evaluator.types import Evaluation, geometric_mean
from evo.candidate import Record


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


def costs(record: Record) -> dict[str, float | None]:
    """What a correct candidate takes, by the names of `COSTS`; None where its evaluation does not say."""
    return {name: cost(record.evaluation) for name, cost in COSTS.items()}


class Front:
    """The front of everything it was told of, kept from batch to batch."""

    def __init__(self) -> None:
        self._members: list[tuple[tuple[float, ...], Record]] = []

    def add(self, records: Iterable[Record]) -> None:
        """Tell of more candidates; failed ones are passed over."""
        for record in records:
            if record.passed:
                paid = _paid(record)
                if not any(_dominates(other, paid) for other, _ in self._members):
                    kept = [member for member in self._members if not _dominates(paid, member[0])]
                    self._members = [*kept, (paid, record)]

    @property
    def records(self) -> list[Record]:
        """The fastest first."""
        return sorted((record for _, record in self._members), key=_order)


def front(records: Iterable[Record]) -> list[Record]:
    """The correct candidates that no other dominates, the fastest first."""
    alike: dict[tuple[float, ...], list[Record]] = {}
    for record in records:
        if record.passed:
            alike.setdefault(_paid(record), []).append(record)
    found: list[tuple[float, ...]] = []
    for paid in sorted(alike):  # whoever dominates comes before whom it dominates
        if not any(all(map(operator.le, other, paid)) for other in found):
            found.append(paid)
    best = (record for paid in found for record in alike[paid])
    return sorted(best, key=_order)


def _paid(record: Record) -> tuple[float, ...]:
    # What nobody measured counts as the worst: it can make no candidate better than another.
    return tuple(math.inf if value is None or math.isnan(value) else value for value in costs(record).values())


def _dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(map(operator.le, one, other))


def _order(record: Record) -> tuple[float | None, int]:
    return record.evaluation.latency_ms, record.number
