"""Random streams depend on the seed, the name and the place, and on nothing else."""

from __future__ import annotations

import random

import numpy as np

from evo.streams import Streams


def test_the_same_place_gives_the_same_numbers_in_any_order():
    one, two = Streams(7), Streams(7)
    two.generator("other", 1).random(5)
    assert np.array_equal(one.generator("parents", 3).random(4), two.generator("parents", 3).random(4))


def test_names_counters_and_seeds_separate_streams():
    draws = {
        Streams(seed).seed(name, *counters)
        for seed in (0, 1)
        for name in ("parents", "policy")
        for counters in ((), (0,), (1,), (0, 1), (1, 0))
    }
    assert len(draws) == 20


def test_seeds_fit_the_libraries_that_take_them():
    assert all(0 <= Streams(seed).seed("tune", seed) < 2**31 for seed in range(200))


def test_lending_to_deap_leaves_the_global_stream_alone():
    random.seed(5)
    expected = [random.random() for _ in range(3)]
    random.seed(5)
    first = random.random()
    with Streams(1).lent_to_deap("parents", 0):
        lent = random.random()
    assert [first, random.random(), random.random()] == expected
    with Streams(1).lent_to_deap("parents", 0):
        assert random.random() == lent
