"""The packing's geometry, and a short search."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import circle_packing as packing
from benchmarks.circle_packing import COUNT, at_a_wall, centers_of, polished, radii, varied, with_centers
from tests.evo.fakes import SEED


def points(seed):
    return np.random.default_rng(seed).random((COUNT, 2))


def overlaps(centers, sizes):
    apart = np.linalg.norm(centers[:, None] - centers[None], axis=2)
    first, second = np.triu_indices(COUNT, 1)
    return apart[first, second] - sizes[first] - sizes[second]


@given(st.integers(0, 2**31))
@settings(max_examples=10, deadline=None)
def test_circles_neither_overlap_nor_leave_the_square(seed):
    centers = polished(points(seed))
    sizes = radii(centers)
    assert overlaps(centers, sizes).min() > -1e-8
    assert (np.minimum(centers, 1 - centers).min(axis=1) - sizes).min() > -1e-8
    assert 0 < at_a_wall(centers, sizes) <= COUNT


@given(st.integers(0, 2**31))
@settings(max_examples=5, deadline=None)
def test_polishing_never_makes_the_sum_smaller(seed):
    start = points(seed)
    assert radii(polished(start)).sum() >= radii(start).sum() - 1e-9


def test_radii_are_the_largest_for_their_centres():
    """On a grid of 5 x 5 with one circle between four of them, the sum is known."""
    grid = np.array([(0.1 + 0.2 * column, 0.1 + 0.2 * row) for row in range(5) for column in range(5)])
    centers = np.concatenate([grid, [[0.2, 0.2]]])
    assert radii(centers).sum() == pytest.approx(2.5 + np.sqrt(2) * 0.1 - 0.1)


def test_a_candidate_says_its_centres_to_the_last_bit():
    centers = points(3)
    assert np.array_equal(centers_of(with_centers(SEED, centers).text), centers)


def test_operators_depend_on_their_seed_alone():
    start = points(0)
    names = set()
    for seed in range(20):
        name, first = varied(start, np.random.default_rng(seed))
        _, again = varied(start, np.random.default_rng(seed))
        assert np.array_equal(first, again)
        names.add(name)
    assert names == {"shake", "place elsewhere"}


def test_a_short_search_writes_its_result_and_misses_the_target(tmp_path):
    out = tmp_path / "packing.json"
    assert packing.main(["--seeds", "7", "--evaluations", "12", "--out", str(out)]) == 1
    found = json.loads(out.read_text())["arms"]
    assert found["engine"]["evaluations_to_target"] == [None]
    assert found["engine"]["evaluations"] == found["random search"]["evaluations"] == [12]
    assert 2.3 < found["engine"]["best"][0] < packing.TARGET
