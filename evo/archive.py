"""MAP-Elites: the best candidate of every kind of kernel.

A cell changes hands only when the challenger's lower confidence bound beats the owner's mean, so a lucky sample
cannot evict a better kernel. Modelled latencies carry no spread and are compared as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from evo.candidate import Record

Cell = tuple[str, ...]


class Archive:
    """Cells and their owners, in the order in which the cells were found."""

    def __init__(self) -> None:
        self._owners: dict[Cell, Record] = {}

    def add(self, cell: Cell, record: Record) -> bool:
        """Offer a passed record; True when it now owns the cell. Raises ValueError for a failed one."""
        speedup = record.speedup
        if speedup is None:
            raise ValueError(f"{record.id}: only passed candidates with a baseline enter the archive")
        owner = self._owners.get(cell)
        if owner is not None and lower_bound(record) <= (owner.speedup or 0.0):
            return False
        self._owners[cell] = record
        return True

    def replace(self, known: Record, now: Record | None) -> None:
        """The owner `known` was measured again: it is `now`, or gives its cells up where that is None."""
        for cell, owner in list(self._owners.items()):
            if owner.id == known.id:
                if now is None:
                    del self._owners[cell]
                else:
                    self._owners[cell] = now

    def __len__(self) -> int:
        return len(self._owners)

    def __iter__(self) -> Iterator[tuple[Cell, Record]]:
        return iter(self._owners.items())

    @property
    def owners(self) -> list[Record]:
        """The owner of every cell, in the order of the cells."""
        return list(self._owners.values())

    @property
    def qd_score(self) -> float:
        """Sum over cells of the owner's log speedup where positive (QD-score with the baseline as zero)."""
        return qd_score(self._owners.values())

    def sample(self, rng: np.random.Generator) -> Record:
        """An owner, each cell equally likely: cells are kinds of kernels, not ranks."""
        owners = self.owners
        return owners[int(rng.integers(len(owners)))]


def qd_score(owners: Iterable[Record]) -> float:
    """Sum over the owners of cells of their log speedup where positive."""
    return sum(max(0.0, math.log(owner.speedup or 1.0)) for owner in owners)


def lower_bound(record: Record) -> float:
    """Geometric mean over workloads of the lower end of the speedup's interval; the speedup where none is known."""
    bounds = [timing.ratio_low or timing.speedup for timing in record.evaluation.timings.values()]
    known = [bound for bound in bounds if bound]
    return math.exp(sum(math.log(bound) for bound in known) / len(known)) if known else 0.0
