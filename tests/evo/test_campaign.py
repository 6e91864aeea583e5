"""A campaign searches, records, stops and leaves files, whatever its candidates do."""

from __future__ import annotations

import json
import os
import signal
from itertools import pairwise

import pytest

from evaluator.errors import EnvironmentUnusableError, TaskError, UsageError
from evaluator.source_hash import structure_hash
from evaluator.types import EvalStatus
from evo.campaign import Campaign
from evo.config import CampaignConfig
from evo.run import Run
from tests.evo import fakes
from tests.evo.driver import campaign, config


class Policy(fakes.FakePolicy):
    """A policy that runs dry."""

    def propose(self, requests):
        return [[] for _ in requests]


def made(path, settings=None, evaluator=None, policy=None):
    campaign = Campaign(
        settings or config(40), path, evaluator=evaluator or fakes.FakeEvaluator(), policy=policy or fakes.FakePolicy()
    )
    campaign.task = fakes.task()
    return campaign


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("campaign") / "run"
    return campaign(path, "start").run().run


def test_the_search_beats_its_seed(run):
    best = run.elites(1)[0]
    assert best.speedup > 1.3
    assert run.records()[0].speedup == pytest.approx(1.0)


def test_the_budget_is_kept_to_the_candidate(run):
    assert len(run.records()) == config().budget.evaluations
    assert run.generations()[-1].evaluations == 60


def test_no_program_is_judged_twice(run):
    hashes = [record.candidate.ast_hash for record in run.records()]
    assert len(hashes) == len(set(hashes))


def test_tuning_and_rewriting_share_the_batches(run):
    operators = [record.candidate.operator for record in run.records()]
    assert operators[0] == "seed"
    assert operators.count("tune") >= 15
    assert operators.count("rewrite") >= 15


def test_a_tuned_child_keeps_its_parents_structure_and_a_rewritten_one_does_not(run):
    for record in run.records()[1:]:
        parent = run.record(record.candidate.parent_ids[0])
        same = record.candidate.structure == parent.candidate.structure
        assert same == (record.candidate.operator == "tune")
        assert record.candidate.structure == structure_hash(run.source(record.candidate.source_sha).text)


def test_failures_are_recorded_with_their_reason_and_the_search_goes_on(run):
    failed = [record for record in run.records() if not record.passed]
    assert failed
    assert all(record.evaluation.reason for record in failed)
    assert not any(record.id in {elite.id for elite in run.elites()} for record in failed)


def test_the_saved_best_is_the_best(run):
    fastest = max((record for record in run.records() if record.passed), key=lambda record: record.speedup)
    assert run.elites(1)[0].speedup == fastest.speedup
    assert run.generations()[-1].best_speedup == fastest.speedup


def test_the_population_is_never_larger_than_configured_and_holds_one_of_each_structure(run):
    for end in run.generations():
        structures = [run.record(name).candidate.structure for name in end.population]
        assert len(structures) <= 6
        assert len(structures) == len(set(structures))


def test_lineage_leads_from_the_seed_to_the_child(run):
    line = run.lineage(run.elites(1)[0].id)
    assert line[0].candidate.operator == "seed"
    assert all(later.candidate.parent_ids[0] == earlier.id for earlier, later in pairwise(line))


def test_rewrite_history_grows_along_the_lineage(run):
    for record in run.records()[1:]:
        parent = run.record(record.candidate.parent_ids[0])
        grown = len(record.candidate.rewrites) - len(parent.candidate.rewrites)
        assert grown == (1 if record.candidate.operator == "rewrite" else 0)


def test_a_run_leaves_its_derived_files(run):
    for name in ("metrics.jsonl", "trajectories.jsonl", "optuna.journal", "report.html", "environment.json"):
        assert (run.path / name).stat().st_size > 0, name
    assert len(list(run.dir.elites.glob("*.py"))) == run.config.elites


def test_the_exported_studies_hold_every_trial(run):
    import optuna

    backend = optuna.storages.journal.JournalFileBackend(str(run.path / "optuna.journal"))
    storage = optuna.storages.JournalStorage(backend)
    studies = optuna.load_study(study_name=run.records()[0].candidate.structure[:12], storage=storage)
    assert len(studies.trials) == sum(
        record.candidate.structure == run.records()[0].candidate.structure for record in run.records()
    )


def test_the_same_seed_gives_the_same_run_and_another_seed_another(tmp_path):
    def ids(name, seed):
        settings = config(20).model_copy(update={"seed": seed})
        return [record.candidate.source_sha for record in made(tmp_path / name, settings).run().run.records()]

    first = ids("a", 1)
    assert ids("b", 1) == first
    assert ids("c", 2) != first


def test_a_campaign_whose_seed_fails_says_so_and_stops(tmp_path):
    class Strict(fakes.FakeEvaluator):
        def _judge(self, source):
            return fakes.failed(source, EvalStatus.WRONG_VALUE, "3 of 8 values differ")

    result = made(tmp_path / "run", evaluator=Strict()).run()
    assert result.stopped == "seed_failed"
    assert result.best is None
    assert len(result.run.records()) == 1


def test_a_campaign_with_nothing_left_to_try_ends_as_exhausted(tmp_path):
    settings = config(500).model_copy(update={"search": config().search.model_copy(update={"offspring": 20})})
    result = made(tmp_path / "run", settings, policy=Policy()).run()
    assert result.stopped == "exhausted"
    assert {record.candidate.operator for record in result.run.records()} == {"seed", "tune"}


def test_a_directory_that_holds_a_run_is_not_started_again(run):
    with pytest.raises(UsageError, match="already used"):
        made(run.path).run()


def test_a_second_campaign_on_a_living_run_is_refused(run):
    run.dir.lock()
    try:
        with pytest.raises(UsageError, match="another process is writing"):
            campaign(run.path, "resume").run()
    finally:
        run.dir.unlock()


def test_a_task_without_a_seed_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    bare = fakes.task().model_copy(update={"seed_source": None})
    monkeypatch.setattr("evo.campaign.load_task", lambda spec: bare)
    with pytest.raises(TaskError, match="no seed kernel"):
        Campaign(config(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_disk_that_fills_up_keeps_what_was_recorded_and_resumes(tmp_path, monkeypatch):
    path = tmp_path / "run"
    real, calls = os.fsync, []

    def fills_up(descriptor):
        calls.append(descriptor)
        if len(calls) > 60:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fills_up)
    with pytest.raises(EnvironmentUnusableError, match="No space left on device"):
        made(path).run()
    monkeypatch.setattr(os, "fsync", real)
    kept = len(Run.load(path).records())
    assert kept > 0
    parts = {"evaluator": fakes.FakeEvaluator(), "policy": fakes.FakePolicy()}
    again = Campaign.resume(path, **parts)
    again.task = fakes.task()
    assert len(again.run().run.records()) == 40
    assert len(parts["evaluator"].judged) == 40 - kept


def test_sigterm_drains_like_ctrl_c(tmp_path):
    class Terminating(fakes.FakeEvaluator):
        def _judge(self, source):
            if len(self.judged) == 7:
                os.kill(os.getpid(), signal.SIGTERM)
            return super()._judge(source)

    result = made(tmp_path / "run", evaluator=Terminating()).run()
    assert result.interrupted
    assert len(result.run.records()) == 7
    assert result.run.status == "interrupted"


def test_several_objectives_keep_a_front_of_trade_offs(tmp_path):
    search = {"selection": "nsga2", "objectives": ("speedup", "code_size"), "offspring": 6, "population": 8}
    settings = CampaignConfig.model_validate(
        {"task": "softmax", "budget": {"evaluations": 50}, "search": search, "monitors": ("jsonl",)}
    )
    result = made(tmp_path / "run", settings).run()
    last = result.run.generations()[-1]
    sizes = {len(result.run.source(result.run.record(name).candidate.source_sha).text) for name in last.population}
    assert len(sizes) > 1


@pytest.mark.parametrize("sampler", ["tpe", "random", "cmaes", "gp", "grid"])
def test_every_sampler_tunes(tmp_path, sampler):
    base = config(24)
    tuning = base.search.tuning.model_copy(update={"sampler": sampler, "share": 1.0, "trials": 30})
    settings = base.model_copy(update={"search": base.search.model_copy(update={"tuning": tuning})})
    result = made(tmp_path / "run", settings, policy=Policy()).run()
    assert len(result.run.records()) == 24
    assert result.best.speedup > 1.0


def test_metrics_label_the_kind_of_timing(run):
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert {line["timing_kind"] for line in lines} == {"modelled"}
    assert lines[-1]["cells"] >= 2
