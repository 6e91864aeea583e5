"""Islands: populations that evolve apart, each in a direction of its own, and send copies of their best round a ring.

With one island nothing here changes what a single population does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from evo.archive import Archive, lower_bound
from evo.candidate import Record
from evo.config_search import SearchConfig
from evo.events import IslandEnd
from evo.population import Individual, Population
from evo.strategies import STRATEGIES, Strategy
from evo.streams import Streams


@dataclass
class Island:
    """One population with its direction and its clock."""

    number: int
    population: Population
    direction: str
    """Name of its strategy."""
    generation: int = 0
    """Generations it has lived through, whether or not it got offspring in them."""
    gained: int = 0
    """Its generation when its best last improved."""
    restarts: int = 0

    @property
    def strategy(self) -> Strategy:
        """What it tells the policy."""
        return STRATEGIES[self.direction]

    @property
    def records(self) -> list[Record]:
        """Its survivors."""
        return [member.record for member in self.population.members]

    @property
    def best(self) -> Record | None:
        """Its fastest survivor."""
        timed = [member for member in self.population.members if member.speedup]
        fastest = max((member.speedup or 0.0 for member in timed), default=0.0)
        equals = (member.record for member in timed if member.speedup == fastest)
        return min(equals, key=lambda record: record.number, default=None)

    def is_home_of(self, record: Record) -> bool:
        """Whether a candidate was born here; the seed was born everywhere."""
        return not record.candidate.parent_ids or record.candidate.island == self.number

    def takes(self, offspring: Individual) -> bool:
        """Whether a judged candidate competes here: born here, or a config of a structure that lives here."""
        return self.is_home_of(offspring.record) or self.holds(offspring.structure)

    def holds(self, structure: str) -> bool:
        """Whether a structure is among its survivors."""
        return any(member.structure == structure for member in self.population.members)


class Islands:
    """All islands of a campaign."""

    def __init__(self, config: SearchConfig, streams: Streams) -> None:
        self._config = config.islands
        self._streams = streams
        count = config.islands.count
        names = config.islands.strategies
        self._islands = [
            Island(number, Population(config, streams, number), names[number % len(names)]) for number in range(count)
        ]

    def __len__(self) -> int:
        return len(self._islands)

    def __iter__(self) -> Iterator[Island]:
        return iter(self._islands)

    def at(self, generation: int, index: int) -> Island:
        """The island whose turn it is to have a child."""
        return self._islands[(generation + index) % len(self._islands)]

    @property
    def members(self) -> list[Individual]:
        """Survivors of all islands; one that lives on several counts once."""
        found = {member.record.id: member for island in self._islands for member in island.population.members}
        return list(found.values())

    @property
    def median(self) -> float:
        """Median of the first objective over all survivors."""
        return float(self._islands[0].population.statistics.compile(self.members)["median"])

    def individual(self, record: Record, source_size: int) -> Individual:
        """A record with its fitness."""
        return self._islands[0].population.individual(record, source_size)

    def advance(
        self, offspring: Sequence[Individual], generation: int, archive: Archive, size: Callable[[Record], int]
    ) -> None:
        """One generation ends on every island; then those that are due send migrants or start again.

        `size` gives the length of a record's source, for the fitness of one that starts an island again.
        """
        for island in self._islands:
            before = island.best
            island.population.advance([child for child in offspring if island.takes(child)])
            island.generation += 1
            if _faster(island.best, before):
                island.gained = island.generation
        if len(self) > 1:
            if (generation + 1) % self._config.migrate_every == 0:
                self._migrate()
            self._restart(generation, archive, size)

    def _migrate(self) -> None:
        """Copies of every island's best go to the next one; what the next one already has is skipped."""
        leaving = [self._emigrants(island) for island in self._islands]
        for island, guests in zip(self._islands, leaving[-1:] + leaving[:-1], strict=True):
            before = island.best
            new = [guest.copy() for guest in guests if not island.holds(guest.structure)]
            island.population.advance(new)
            if _faster(island.best, before):
                island.gained = island.generation

    def _emigrants(self, island: Island) -> list[Individual]:
        # By the lower bound, so that a lucky sample does not seed other islands.
        passed = [member for member in island.population.members if member.record.passed]
        passed.sort(key=lambda member: (-lower_bound(member.record), member.record.number))
        return passed[: math.ceil(self._config.migrants * len(passed))]

    def _restart(self, generation: int, archive: Archive, size: Callable[[Record], int]) -> None:
        leader = max(self._islands, key=lambda island: (_speed(island.best), -island.number))
        for island in self._islands:
            patience = self._config.stagnation
            if island is leader or patience is None or island.generation - island.gained < patience or not len(archive):
                continue
            chosen = archive.sample(self._streams.generator("restart", generation, island.number))
            island.population.members = [self.individual(chosen, size(chosen))]
            island.gained = island.generation
            island.restarts += 1

    def ends(self) -> tuple[IslandEnd, ...]:
        """What the journal keeps of each; nothing for a single one."""
        if len(self) == 1:
            return ()
        return tuple(
            IslandEnd(
                generation=island.generation,
                members=tuple(record.id for record in island.records),
                gained=island.gained,
                restarts=island.restarts,
                strategy=island.direction,
                best_speedup=island.best.speedup if island.best else None,
            )
            for island in self._islands
        )


def _speed(record: Record | None) -> float:
    return (record.speedup or 0.0) if record else 0.0


def _faster(now: Record | None, before: Record | None) -> bool:
    return _speed(now) > _speed(before)
