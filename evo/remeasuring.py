"""Owners of cells and leaders of islands are measured again every few generations.

Whoever owns a cell for long was measured once and may have been lucky then: it would keep better kernels out, have
children on the strength of its luck, and carry it to other islands. It counts by its middle measurement, of two by the
slower one; one that turns out to be wrong gives up its place. Nothing here depends on anything but journal events.
"""

from __future__ import annotations

from collections.abc import Iterable

from evaluator.types import Evaluation
from evo.candidate import Record
from evo.config_search import ArchiveConfig
from evo.events import Remeasured
from evo.finalists import failed, middle

AT_ONCE = 4
"""Most that are measured again after one generation."""


class Remeasuring:
    """Who is to be measured again, and what came of it so far."""

    def __init__(self, config: ArchiveConfig) -> None:
        self._every = config.remeasure if config.enabled else None
        self._rounds: dict[str, list[Evaluation]] = {}
        self.open: list[Record] = []
        """Who is to be measured before the next batch, in order."""

    def plan(self, generation: int, records: Iterable[Record]) -> None:
        """A generation ended; `records` are owners and leaders. Those measured least often are first, then the fast."""
        self.open = []
        if self._every is None or (generation + 1) % self._every != 0:
            return
        known = {one.id: one for one in records if one.passed and one.evaluation.kind == "measured"}
        self._rounds = {name: rounds for name, rounds in self._rounds.items() if name in known}
        self.open = sorted(known.values(), key=self._order)[:AT_ONCE]

    def _order(self, one: Record) -> tuple[int, float, int]:
        return len(self._rounds.get(one.id, ())), -(one.speedup or 0.0), one.number

    def answer(self, event: Remeasured) -> tuple[Record, Record | None]:
        """The record as it was, and as it counts from now on; None where it failed.

        Raises KeyError for a candidate that is not open.
        """
        record = next((one for one in self.open if one.id == event.candidate), None)
        if record is None:
            raise KeyError(event.candidate)
        self.open.remove(record)
        rounds = self._rounds.setdefault(record.id, [record.evaluation])
        rounds.append(event.evaluation)
        if failed(rounds):
            return record, None
        settled = middle(rounds)
        assert settled is not None  # the first one passed
        return record, record.model_copy(update={"evaluation": settled})
