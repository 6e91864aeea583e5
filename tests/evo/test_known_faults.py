"""Faults of other search systems that must not be ours. `FAULTS` says where each has its test."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from evo.config_search import SearchConfig
from evo.run import Run
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


class Dawdler(fakes.FakeEvaluator):
    """Takes longest over the fastest kernels: by its own account, and by that of whoever waits for it."""

    def _judge(self, source):
        found = super()._judge(source)
        return found.model_copy(update={"seconds": 1.0 / (found.latency_ms or 1.0)})


def test_a_kernels_speed_is_its_own_and_not_that_of_its_judge(tmp_path):
    running = campaign(tmp_path / "run", "start")
    running._given = (Dawdler(), running._given[1])
    best = running.run().best
    assert best.evaluation.seconds == max(item.evaluation.seconds for item in Run.load(tmp_path / "run").records())
    assert best.speedup == fakes.latency(fakes.SEED) / best.evaluation.latency_ms


def test_a_run_that_was_stopped_between_two_generations_is_not_done_when_it_is_resumed(tmp_path):
    campaign(tmp_path / "whole", "start").run()
    lines = (tmp_path / "whole" / "journal.jsonl").read_bytes().splitlines(keepends=True)
    ends = [number for number, line in enumerate(lines, start=1) if b'"kind": "generation"' in line]
    shutil.copytree(tmp_path / "whole", tmp_path / "run")
    (tmp_path / "run" / "journal.jsonl").write_bytes(b"".join(lines[: ends[2]]))
    result = campaign(tmp_path / "run", "resume").run()
    assert result.stopped == "evaluations"
    assert len(result.run.records()) == config().budget.evaluations


FAULTS = {
    "all offspring in island 0": "evo/test_islands.py::test_all_islands_get_offspring_and_not_the_first_alone",
    "generation counters of other islands frozen": (
        "evo/test_islands.py::test_the_generation_counter_of_every_island_goes_on"
    ),
    "the owner of a rare cell evicted by population size": (
        "evo/test_known_faults.py::test_the_owner_of_a_rare_cell_stays_when_it_is_no_survivor"
    ),
    "novelty checked after the expensive evaluation": (
        "evo/test_known_faults.py::test_what_is_known_is_refused_before_it_is_judged"
    ),
    "timeout not enforced": "evaluator/test_gpu_parts.py::test_a_hang_is_a_timeout_and_leaves_no_process",
    "a hang after a timeout": (
        "evaluator/test_gpu_parts.py::test_what_hangs_is_gone_before_whoever_asked_can_let_go_of_the_gpu"
    ),
    "the prompt sampler reseeding the random stream": (
        "evo/test_known_faults.py::test_the_search_leaves_the_global_random_streams_alone"
    ),
    "the saved best not the best": "evo/test_known_faults.py::test_the_saved_best_is_the_best_of_all_that_was_judged",
    "population limit not enforced": "evo/test_known_faults.py::test_survivors_never_exceed_the_limit",
    "a noisy false elite seeding islands": (
        "evo/test_islands.py::test_a_lucky_sample_does_not_migrate_before_a_sure_one"
    ),
    "resume declaring itself done early": (
        "evo/test_known_faults.py::test_a_run_that_was_stopped_between_two_generations_is_not_done_when_it_is_resumed"
    ),
    "resume breaking when the model list changes": (
        "evo/test_bandit.py::test_a_run_resumes_with_another_list_of_policies"
    ),
    "budget discarding paid evaluations": (
        "evo/test_known_faults.py::test_every_evaluation_that_was_paid_for_is_in_the_run_and_the_budget_is_used_up"
    ),
    "speed measured on harness wall time": (
        "evo/test_known_faults.py::test_a_kernels_speed_is_its_own_and_not_that_of_its_judge"
    ),
    "parallel warm-up timing bad configs into the cache": "evaluator/test_gpu_lock.py::test_a_timer_is_alone",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_known_fault_has_its_test(fault):
    path, _, name = FAULTS[fault].partition("::")
    assert f"\ndef {name}(" in (Path(__file__).parents[1] / path).read_text(encoding="utf-8")
