"""Random streams that need no saved state.

Every random choice draws from a generator named by what it is for and where in the campaign it happens
(`generator("parents", 12)`), all children of one seed by NumPy's SeedSequence. A resumed run asks for the same
names and gets the same numbers; nothing global is ever seeded.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

SEED_BITS = 31
"""Seeds handed to Optuna and policies fit a signed 32-bit integer."""


class Streams:
    """Named, counted children of one campaign seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def _sequence(self, name: str, counters: tuple[int, ...]) -> np.random.SeedSequence:
        return np.random.SeedSequence(self._seed, spawn_key=(zlib.crc32(name.encode()), *counters))

    def generator(self, name: str, *counters: int) -> np.random.Generator:
        """A NumPy generator for one use at one place of the campaign."""
        return np.random.default_rng(self._sequence(name, counters))

    def seed(self, name: str, *counters: int) -> int:
        """A seed in [0, 2^31) for a library that wants an integer."""
        return int(self._sequence(name, counters).generate_state(1)[0]) >> (32 - SEED_BITS)

    @contextmanager
    def lent_to_deap(self, name: str, *counters: int) -> Iterator[None]:
        """Let DEAP, which knows only the `random` module, draw from a named stream.

        The module's own state is put back afterwards, so nobody else's numbers change.
        """
        saved = random.getstate()
        random.seed(self.seed(name, *counters))
        try:
            yield
        finally:
            random.setstate(saved)
