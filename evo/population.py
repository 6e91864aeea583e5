"""DEAP individuals: one per structure, scored by its best config.

`deap.creator` is process-global, so fitness classes are made by subclassing `base.Fitness` instead.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence

from deap import base, tools

from evaluator.types import Evaluation
from evo.candidate import Record
from evo.config_search import SearchConfig
from evo.streams import Streams

FAILED = -20.0
"""Objective of a failure before its rank is added: below any log speedup that can be measured."""


def _speedup(evaluation: Evaluation, source_size: int) -> float:
    return math.log(evaluation.speedup or 1.0)


def _registers(evaluation: Evaluation, source_size: int) -> float:
    profile = evaluation.profile
    return float(profile.registers or 0) if profile else 0.0


def _shared_memory(evaluation: Evaluation, source_size: int) -> float:
    profile = evaluation.profile
    return float(profile.shared_bytes or 0) if profile else 0.0


def _code_size(evaluation: Evaluation, source_size: int) -> float:
    return float(source_size)


# name -> (weight, value): +1 is maximised, -1 minimised.
OBJECTIVES: dict[str, tuple[float, Callable[[Evaluation, int], float]]] = {
    "speedup": (1.0, _speedup),
    "registers": (-1.0, _registers),
    "shared_memory": (-1.0, _shared_memory),
    "code_size": (-1.0, _code_size),
}


class Individual:
    """A structure in the population, represented by its best record."""

    def __init__(self, record: Record, fitness: base.Fitness) -> None:
        self.record = record
        self.fitness = fitness
        self.speedup = record.speedup
        """Of the record, asked for far more often than it is worth working out."""

    def copy(self) -> Individual:
        """The same record with a fitness of its own, as DEAP writes crowding distances into it."""
        return Individual(self.record, copy.deepcopy(self.fitness))

    @property
    def structure(self) -> str:
        """The hash that all configs of this structure share."""
        return self.record.candidate.structure


class Population:
    """The survivors, and DEAP's operators on them."""

    def __init__(self, config: SearchConfig, streams: Streams, island: int = 0) -> None:
        """Island `island` of `search.islands.count`, with its share of the survivors."""
        self._config = config
        self._streams = streams
        share, rest = divmod(config.population, config.islands.count)
        self.size = max(1, share + (island < rest))
        self.members: list[Individual] = []
        self._fitness = type(
            "CampaignFitness",
            (base.Fitness,),
            {"weights": tuple(OBJECTIVES[name][0] for name in config.objectives)},
        )
        self.toolbox = base.Toolbox()
        if config.selection == "nsga2":
            self.toolbox.register("survive", tools.selNSGA2)
            self.toolbox.register("mate", _crowded_tournament)
        else:
            self.toolbox.register("survive", tools.selBest)
            self.toolbox.register("mate", tools.selTournament, k=1, tournsize=config.tournament_size)
        self.statistics = tools.Statistics(lambda member: member.fitness.values[0])
        self.statistics.register("max", max)
        self.statistics.register("median", _median)

    def individual(self, record: Record, source_size: int) -> Individual:
        """A record with its DEAP fitness. Failures rank by how far they got, below every pass."""
        evaluation = record.evaluation
        fitness = self._fitness()
        if record.passed:
            fitness.values = tuple(OBJECTIVES[name][1](evaluation, source_size) for name in self._config.objectives)
        else:
            fitness.values = tuple(_worst(name, evaluation) for name in self._config.objectives)
        return Individual(record, fitness)

    def advance(self, offspring: Sequence[Individual]) -> None:
        """(mu + lambda): keep the best record of each structure, then the best `size` structures; nothing is drawn."""
        best: dict[str, Individual] = {}
        for member in [*self.members, *offspring]:
            held = best.get(member.structure)
            if held is None or member.fitness > held.fitness:
                best[member.structure] = member
        pool = list(best.values())
        count = min(self.size, len(pool))
        self.members = self.toolbox.survive(pool, count)

    def parent(self, generation: int, index: int) -> Record:
        """One parent by tournament."""
        with self._streams.lent_to_deap("parents", generation, index):
            chosen: Individual = self.toolbox.mate(self.members)[0]
        return chosen.record


def _worst(name: str, evaluation: Evaluation) -> float:
    # Below every pass on every objective; minimised ones get the mirror image, far above any real value.
    depth = FAILED + evaluation.status.rank
    return depth if name == "speedup" else depth * 1e6 * OBJECTIVES[name][0]


def _crowded_tournament(members: Sequence[Individual]) -> list[Individual]:
    # DEAP's dominance-and-crowding tournament works on groups of four.
    if len(members) < 4:
        return list(tools.selRandom(members, 1))
    tools.emo.assignCrowdingDist(members)
    return list(tools.selTournamentDCD(members, 4))


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]
