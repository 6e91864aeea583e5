"""Faults of other search systems that must not be ours; those of islands and the bandit have their own files."""

from __future__ import annotations

import random

import numpy as np
import pytest

from evo.config_search import SearchConfig
from tests.evo import fakes
from tests.evo.driver import campaign, config

SETTINGS = {
    "plain": {},
    "islands": {"islands": {"count": 3, "migrate_every": 2, "stagnation": 2}},
    "bandit": {"operators": {"kind": "bandit"}, "parents": {"kind": "weights"}},
    "everything": {
        "islands": {"count": 2, "migrate_every": 3, "stagnation": 3},
        "operators": {"kind": "bandit"},
        "parents": {"kind": "puct"},
    },
}


@pytest.fixture(scope="module", params=SETTINGS)
def judged(request, tmp_path_factory):
    """A finished run and its judge."""
    running = campaign(tmp_path_factory.mktemp("faults") / "run", "start")
    search = SearchConfig.model_validate({"population": 6, "offspring": 5, **SETTINGS[request.param]})
    running.config = config(60).model_copy(update={"search": search})
    evaluator = fakes.FakeEvaluator()
    running._given = (evaluator, running._given[1])
    return running.run(), evaluator


def test_the_saved_best_is_the_best_of_all_that_was_judged(judged):
    result, _ = judged
    best = max(item.speedup for item in result.run.records() if item.speedup)
    assert result.best.speedup == best
    assert result.run.elites(1)[0].speedup == best
    assert result.run.generations()[-1].best_speedup == best


def test_the_owner_of_a_rare_cell_stays_when_it_is_no_survivor(judged):
    result, _ = judged
    last = result.run.generations()[-1]
    assert set(last.archive.values()) - set(last.population)
    for end in result.run.generations():
        assert set(end.archive) <= set(last.archive)


def test_survivors_never_exceed_the_limit(judged):
    result, _ = judged
    assert max(len(end.population) for end in result.run.generations()) <= 6


def test_what_is_known_is_refused_before_it_is_judged(judged):
    result, evaluator = judged
    programs = [item.candidate.ast_hash for item in result.run.records()]
    assert len(programs) == len(set(programs))
    assert len(evaluator.judged) == len(set(evaluator.judged))


def test_every_evaluation_that_was_paid_for_is_in_the_run_and_the_budget_is_used_up(judged):
    result, evaluator = judged
    assert len(evaluator.judged) == len(result.run.records()) == 60
    assert result.stopped == "evaluations"


def test_the_search_leaves_the_global_random_streams_alone(tmp_path):
    random.seed(1)
    np.random.seed(1)
    before, numbers = random.getstate(), np.random.get_state()[1].tolist()
    running = campaign(tmp_path / "run", "start")
    search = SearchConfig.model_validate({"population": 6, "offspring": 5, **SETTINGS["everything"]})
    running.config = config(30).model_copy(update={"search": search})
    running.run()
    assert random.getstate() == before
    assert np.random.get_state()[1].tolist() == numbers
