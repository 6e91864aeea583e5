"""Who gets children: the parent weights of ShinkaEvolve, the PUCT rule of TTT-Discover, epsilon-lexicase over workloads
(La Cava, Spector and Danai 2016), or a tournament.

Everything here is about structures, since all configs of one structure are one parent. Scores are log speedups.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evo.candidate import Record
from evo.config_search import ParentsConfig, SearchConfig

if TYPE_CHECKING:
    from evo.islands import Island
    from evo.operators.base import SearchView

Floats = NDArray[np.float64]

STEEPEST = 60.0
"""Largest exponent of the sigmoid: its weights stay above zero and below overflow."""


class Family:
    """Which structure came from which, how often each was rewritten, and what came of it."""

    def __init__(self, counts_visits: bool = True) -> None:
        """Without `counts_visits`, which cost more the longer lines of descent are, `visits` stays empty."""
        self._counts_visits = counts_visits
        self._parents: dict[str, tuple[str, ...]] = {}
        self._best_child: dict[str, float] = {}
        self.children: Counter[str] = Counter()
        """Structures made from each structure, those that nobody has judged yet included."""
        self.visits: Counter[str] = Counter()
        """Structures made from each structure or a descendant of it."""
        self.total = 0
        """Structures made from others."""

    def born(self, structure: str, parents: Sequence[str]) -> None:
        """A candidate entered a batch. Another config of a known structure is nobody's child."""
        if structure in self._parents:
            return
        self._parents[structure] = tuple(parents)
        if parents:
            self.total += 1
            self.children.update(set(parents))
            if self._counts_visits:
                self.visits.update(self.ancestors(structure))

    def judged(self, structure: str, score: float | None) -> None:
        """A config of a structure has a verdict; None for a failed one."""
        for parent in self._parents.get(structure, ()):
            if score is not None:
                self._best_child[parent] = max(score, self._best_child.get(parent, score))

    def best_child(self, structure: str) -> float | None:
        """Log speedup of the best structure made from this one."""
        return self._best_child.get(structure)

    def ancestors(self, structure: str) -> set[str]:
        """All structures that this one descends from."""
        found: set[str] = set()
        pending = list(self._parents.get(structure, ()))
        while pending:
            ancestor = pending.pop()
            if ancestor not in found:
                found.add(ancestor)
                pending += self._parents.get(ancestor, ())
        return found


@dataclass
class Draw:
    """The parents of one batch, taken one by one. What was taken counts as a child more from then on."""

    config: ParentsConfig
    kind: str
    family: Family
    picked: Counter[str] = field(default_factory=Counter)
    _blocking: list[str] = field(default_factory=list)
    _ancestors: dict[str, set[str]] = field(default_factory=dict)

    def take(self, pool: Sequence[Record], rng: np.random.Generator) -> Record:
        """One of the pool's passed records; of its failed ones only where none passed."""
        pool = [record for record in pool if record.passed] or list(pool)
        chosen = self._chosen(pool, self._free(pool), rng)
        structure = chosen.candidate.structure
        self.picked[structure] += 1
        self._blocking.append(structure)
        return chosen

    def _chosen(self, pool: Sequence[Record], free: Sequence[int], rng: np.random.Generator) -> Record:
        if self.kind == "lexicase":
            allowed = [pool[place] for place in free]
            return allowed[lexicase(by_workload(allowed), self.config.epsilon, rng)]
        values = VALUES[self.kind](self, pool)
        if self.kind == "puct":
            return pool[max(free, key=lambda place: (values[place], -place))]
        shares = values[list(free)]
        return pool[free[int(rng.choice(len(free), p=shares / shares.sum()))]]

    def _free(self, pool: Sequence[Record]) -> list[int]:
        """Places of the pool that are of no lineage taken before; all places where there is none."""
        everyone = list(range(len(pool)))
        if not self.config.spread:
            return everyone
        structures = [record.candidate.structure for record in pool]
        free = [
            place for place in everyone if not any(self._related(structures[place], taken) for taken in self._blocking)
        ]
        if not free:
            self._blocking.clear()
        return free or everyone

    def _related(self, one: str, other: str) -> bool:
        """Whether two structures are the same, or one descends from the other."""
        for structure in (one, other):
            if structure not in self._ancestors:
                self._ancestors[structure] = self.family.ancestors(structure)
        return one == other or one in self._ancestors[other] or other in self._ancestors[one]


def scores(pool: Sequence[Record]) -> Floats:
    """Log speedups; 0 where there is none."""
    return np.array([math.log(record.speedup) if record.speedup else 0.0 for record in pool])


def weights(score: Floats, children: Floats, sharpness: float) -> Floats:
    """sigmoid(sharpness * (s - median) / MAD) / (1 + children): always positive."""
    median = float(np.median(score))
    deviation = max(float(np.median(np.abs(score - median))), 1e-6)
    exponent = np.clip(sharpness * (score - median) / deviation, -STEEPEST, STEEPEST)
    shares: Floats = 1.0 / (1.0 + np.exp(-exponent)) / (1.0 + children)
    return shares


def puct(quality: Floats, score: Floats, visits: Floats, total: int, exploration: float) -> Floats:
    """Q + c * range * P * sqrt(1 + T) / (1 + n), with a prior P that falls linearly with the rank."""
    count = len(score)
    prior = np.empty(count)
    prior[np.argsort(-score, kind="stable")] = np.arange(count, 0, -1) * 2.0 / (count * (count + 1))
    values: Floats = quality + exploration * np.ptp(score) * prior * math.sqrt(1 + total) / (1.0 + visits)
    return values


def by_workload(pool: Sequence[Record]) -> Floats:
    """Log speedups, a row for each record and a column for each workload that all of them were timed at.

    Without a baseline for every one of them a column holds the negative log of milliseconds, which orders as well.
    """
    timings = [record.evaluation.timings for record in pool]
    columns = []
    for name in [name for name in timings[0] if all(name in other for other in timings)]:
        ratios = [timing[name].speedup for timing in timings]
        if all(ratios):
            columns.append([math.log(ratio) for ratio in ratios if ratio])
        else:
            columns.append([-math.log(timing[name].median_ms) for timing in timings])
    return np.array(columns, dtype=float).reshape(-1, len(pool)).T


def lexicase(cases: Floats, epsilon: float | None, rng: np.random.Generator) -> int:
    """The row that is left when columns, in random order, keep what is within `epsilon` of their best.

    Without an `epsilon` it is the median absolute deviation of the rows still left. Among several rows chance decides.
    """
    left = np.arange(len(cases))
    for column in rng.permutation(cases.shape[1]):
        values = cases[left, column]
        slack = float(np.median(np.abs(values - np.median(values)))) if epsilon is None else epsilon
        left = left[values >= values.max() - slack]
    return int(rng.choice(left))


def _weights(draw: Draw, pool: Sequence[Record]) -> Floats:
    structures = [record.candidate.structure for record in pool]
    children = np.array([draw.family.children[name] + draw.picked[name] for name in structures], dtype=float)
    return weights(scores(pool), children, draw.config.sharpness)


def _puct(draw: Draw, pool: Sequence[Record]) -> Floats:
    structures = [record.candidate.structure for record in pool]
    score, family = scores(pool), draw.family
    best = [family.best_child(name) for name in structures]
    quality = np.array([own if child is None else child for own, child in zip(score, best, strict=True)])
    visits = np.array([family.visits[name] + draw.picked[name] for name in structures], dtype=float)
    return puct(quality, score, visits, family.total + draw.picked.total(), draw.config.exploration)


VALUES: dict[str, Callable[[Draw, Sequence[Record]], Floats]] = {"weights": _weights, "puct": _puct}


class ParentSelector:
    """Chooses parents from the archive and the population."""

    def __init__(self, config: SearchConfig) -> None:
        self._config = config
        self._kind = config.parents.kind

    def choose(self, view: SearchView, generation: int, indices: range) -> list[Record]:
        """A parent for each index, of the island whose turn it is; `search.archive.parent_share` of them elites."""
        draws = [Draw(self._config.parents, self._kind, view.family) for _ in view.islands]
        chosen = []
        for index in indices:
            island = view.islands.at(generation, index)
            chosen.append(self._one(view, island, draws[island.number], generation, index))
        return chosen

    def _one(self, view: SearchView, island: Island, draw: Draw, generation: int, index: int) -> Record:
        rng = view.streams.generator("parent", generation, index)
        archive = self._config.archive
        elites = [owner for owner in view.archive.owners if island.is_home_of(owner)] if archive.enabled else []
        pool = elites if elites and rng.random() < archive.parent_share else []
        if self._kind != "tournament":
            return draw.take(pool or island.records, rng)
        return pool[int(rng.integers(len(pool)))] if pool else island.population.parent(generation, index)
