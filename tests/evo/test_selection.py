"""Parents are fast, little tried, and of different lineages."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.types import Timing
from evo.config_search import ParentsConfig
from evo.selection import Draw, Family, by_workload, lexicase, puct, weights
from tests.evo.driver import campaign, config
from tests.evo.made import record

LOGS = st.floats(-3, 3, allow_nan=False)
POOLS = st.lists(st.tuples(LOGS, st.integers(0, 50)), min_size=1, max_size=20)


def arrays(pool):
    return [np.array(column, dtype=float) for column in zip(*pool, strict=True)]


def family(*born):
    made = Family()
    for structure, *parents in born:
        made.born(structure, parents)
    return made


def draw(kind, made, **settings):
    return Draw(ParentsConfig(**settings), kind, made)


@given(POOLS, st.floats(0.1, 100))
def test_every_weight_is_positive_and_finite(pool, sharpness):
    found = weights(*arrays(pool), sharpness)
    assert np.all(np.isfinite(found))
    assert np.all(found > 0)


@given(POOLS, st.integers(0, 19), st.integers(1, 10))
def test_another_child_lowers_a_parents_weight_and_no_other(pool, place, more):
    place %= len(pool)
    scores, children = arrays(pool)
    before = weights(scores, children, 10.0)
    children[place] += more
    after = weights(scores, children, 10.0)
    assert after[place] < before[place]
    assert np.delete(after, place) == pytest.approx(np.delete(before, place))


@given(st.lists(LOGS, min_size=2, max_size=20))
def test_with_as_many_children_the_faster_parent_never_weighs_less(scores):
    ordered = np.array(sorted(scores))
    assert np.all(np.diff(weights(ordered, np.zeros(len(ordered)), 10.0)) >= 0)


@given(POOLS, LOGS, st.floats(0.1, 10))
def test_weights_ask_who_is_faster_and_not_in_which_unit(pool, shift, scale):
    scores = np.round(arrays(pool)[0], 2)
    children = arrays(pool)[1]
    deviation = np.median(np.abs(scores - np.median(scores)))
    if deviation > 0.01:  # without any, the smallest deviation is a unit of its own
        assert weights(scores * scale + shift, children, 10.0) == pytest.approx(weights(scores, children, 10.0))


def test_the_weights_are_those_of_the_formula():
    found = weights(np.log([1.0, 2.0, 4.0]), np.array([0.0, 1.0, 3.0]), 10.0)
    assert found == pytest.approx([1 / (1 + math.exp(10)), 0.25, 0.25 / (1 + math.exp(-10))])


@given(POOLS)
def test_an_untried_parent_never_promises_less_than_the_same_one_tried(pool):
    scores, visits = arrays(pool)
    untried = puct(scores, scores, np.zeros(len(pool)), 30, 1.0)
    assert np.all(untried >= puct(scores, scores, visits, 30, 1.0))


def test_puct_is_the_formula():
    score = np.array([0.0, 1.0])
    found = puct(np.array([0.5, 1.0]), score, np.array([0.0, 3.0]), 3, 2.0)
    assert found == pytest.approx([0.5 + 2 * 1 * (1 / 3) * 2, 1.0 + 2 * 1 * (2 / 3) * 2 / 4])


def test_without_exploration_puct_goes_where_children_were_best():
    made = family(("s1",), ("s2",), ("s3", "s1"))
    made.judged("s3", 2.0)
    taken = draw("puct", made, exploration=0.0).take([record(1, 1.1), record(2, 1.9)], np.random.default_rng(0))
    assert taken.id == "c000001"


def test_a_visit_counts_for_every_ancestor_and_a_child_for_its_parents_only():
    made = family(("seed",), ("a", "seed"), ("b", "a"), ("b", "a"), ("c", "a", "b"))
    assert made.children == Counter({"a": 2, "seed": 1, "b": 1})
    assert made.visits == Counter({"seed": 3, "a": 2, "b": 1})
    assert made.ancestors("c") == {"a", "b", "seed"}


def test_tuning_a_structure_does_not_count_as_a_child():
    made = family(("seed",), ("a", "seed"), ("a", "a"))
    assert made.children["a"] == 0


@pytest.mark.parametrize("kind", ["weights", "puct", "lexicase"])
@given(
    links=st.lists(st.integers(0, 100), min_size=1, max_size=12),
    speeds=st.lists(st.floats(0.5, 4), min_size=13, max_size=13),
    seed=st.integers(0, 1000),
)
def test_no_two_of_one_lineage_are_taken_while_another_is_left(kind, links, speeds, seed):
    made = family(("s0",))
    for child, link in enumerate(links, start=1):
        made.born(f"s{child}", [f"s{link % child}"])
    pool = [record(number, speeds[number]) for number in range(len(links) + 1)]
    rng = np.random.default_rng(seed)
    drawing, block = draw(kind, made), []

    def related(one, other):
        return one == other or one in made.ancestors(other) or other in made.ancestors(one)

    for _ in range(6):
        taken = drawing.take(pool, rng).candidate.structure
        if all(any(related(other.candidate.structure, held) for held in block) for other in pool):
            block = []
        assert not any(related(taken, held) for held in block)
        block.append(taken)


def test_without_spread_one_parent_may_fill_a_batch():
    made = family(("s1",), ("s2", "s1"))
    drawing = draw("puct", made, spread=False, exploration=0.0)
    pool = [record(1, 3.0), record(2, 1.0)]
    rng = np.random.default_rng(0)
    assert {drawing.take(pool, rng).id for _ in range(4)} == {"c000001"}


def test_what_failed_is_a_parent_only_where_nothing_passed():
    drawing = draw("weights", family())
    rng = np.random.default_rng(0)
    assert {drawing.take([record(1, None), record(2, 0.1)], rng).id for _ in range(20)} == {"c000002"}
    assert drawing.take([record(1, None)], rng).id == "c000001"


@pytest.mark.parametrize("kind", ["weights", "puct", "lexicase", "tournament"])
def test_a_campaign_with_every_kind_finds_better_kernels_and_does_it_again(tmp_path, kind):
    def best(name):
        base = config(40)
        parents = base.search.parents.model_copy(update={"kind": kind})
        running = campaign(tmp_path / name, "start")
        running.config = base.model_copy(update={"search": base.search.model_copy(update={"parents": parents})})
        result = running.run()
        assert result.best.speedup > 1.5
        return [item.candidate for item in result.run.records()]

    assert best("a") == best("b")


def timed(number, baseline=1.0, **milliseconds):
    timings = {
        name: Timing(kind="measured", median_ms=value, baseline_ms=baseline) for name, value in milliseconds.items()
    }
    made = record(number, 1.0)
    return made.model_copy(update={"evaluation": made.evaluation.model_copy(update={"timings": timings})})


def picks(cases, epsilon, tries=200):
    return {lexicase(np.array(cases, dtype=float), epsilon, np.random.default_rng(seed)) for seed in range(tries)}


def test_lexicase_takes_the_specialist_of_each_workload_and_never_the_one_that_is_best_nowhere():
    assert picks([[2.0, 0.0], [0.0, 2.0], [1.5, 1.5]], epsilon=0.0) == {0, 1}


def test_lexicase_lets_what_is_nearly_the_fastest_compete():
    assert picks([[1.0, 0.0], [0.95, 1.0]], epsilon=0.1) == {1}
    assert picks([[1.0, 0.0], [0.95, 1.0]], epsilon=0.01) == {0, 1}


def test_lexicase_takes_its_slack_from_the_spread_when_none_is_given():
    # median 1.0, deviations 0.0, 0.1 and 0.9: whoever is within 0.1 of the best stays
    assert picks([[1.1], [1.0], [0.1]], epsilon=None) == {0, 1}


@given(st.lists(st.lists(LOGS, min_size=3, max_size=3), min_size=1, max_size=10), st.integers(0, 100))
def test_without_slack_lexicase_never_takes_what_another_beats_everywhere(cases, seed):
    found = np.array(cases)
    taken = lexicase(found, 0.0, np.random.default_rng(seed))
    assert not any(np.all(other > found[taken]) for other in found)


def test_lexicase_goes_by_latency_where_a_baseline_is_missing():
    found = by_workload([timed(1, None, small=1.0, large=4.0), timed(2, 8.0, small=2.0, large=2.0)])
    assert found == pytest.approx(-np.log([[1.0, 4.0], [2.0, 2.0]]))


def test_lexicase_compares_at_the_workloads_that_everyone_was_timed_at():
    found = by_workload([timed(1, 8.0, small=1.0, large=4.0), timed(2, 8.0, small=2.0)])
    assert found == pytest.approx(np.log([[8.0], [4.0]]))


def test_failed_parents_without_timings_are_drawn_by_chance():
    taken = draw("lexicase", family(("s1",), ("s2",))).take(
        [record(1, None), record(2, None)], np.random.default_rng(0)
    )
    assert taken.id in {"c000001", "c000002"}
