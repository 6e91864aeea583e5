"""Repair takes a failed child up again from its correct parent, alike in a resumed run."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from evaluator.errors import UsageError
from evaluator.types import EvalStatus
from evo.bandit import reward
from evo.config_search import SearchConfig
from evo.operators.repair import REPAIRABLE, REPAIRS, other_arguments, own_steps
from evo.report.data import by_rewrite
from policy.rewrites import RewriteContext, RewriteError, apply_steps, catalogue
from policy.types import RewriteStep
from tests.evo import fakes
from tests.evo.configs import load_mapping
from tests.evo.driver import config, searched
from tests.evo.test_resume import resumed_from_cuts, state

CONTEXT = RewriteContext.of_task(fakes.task())


class Strict(fakes.FakeEvaluator):
    """Finds kernels wrong that say how the cache is to keep what they read first."""

    status = EvalStatus.WRONG_VALUE

    def _judge(self, source):
        if "evict_" in source.text or ".cg" in source.text:
            return fakes.failed(source, self.status, "3 of 8 values differ")
        return super()._judge(source)


class Odd(fakes.FakeEvaluator):
    """Finds every other structure of the fake policy wrong."""

    def _judge(self, source):
        if sum(fakes.variant(source.text)) % 2:
            return fakes.failed(source, EvalStatus.WRONG_VALUE, "3 of 8 values differ")
        return super()._judge(source)


class Suspicious(Strict):
    status = EvalStatus.HARNESS_TAMPER


def settings(evaluations=60, **operators):
    found = {"population": 6, "offspring": 6, "operators": {"repair": 0.35, **operators}}
    return config(evaluations).model_copy(update={"search": SearchConfig.model_validate(found)})


def repairs(run):
    return [item for item in run.records() if item.candidate.operator == "repair"]


@pytest.fixture
def strict(monkeypatch):
    monkeypatch.setattr(fakes, "FakeEvaluator", Strict)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fakes, "FakeEvaluator", Strict)
        return searched(tmp_path_factory.mktemp("repaired") / "run", settings(90))


def test_a_repair_is_a_child_of_the_correct_parent_and_names_the_failure_second(run):
    assert len(repairs(run)) >= 4
    for child in repairs(run):
        base, failure = (run.record(parent) for parent in child.candidate.parent_ids)
        assert base.passed
        assert failure.evaluation.status in REPAIRABLE
        assert failure.candidate.parent_ids[0] == base.id
        assert failure.candidate.generation < child.candidate.generation
        assert failure.id in child.candidate.explanation


def test_a_repair_undoes_the_last_rewrite_or_does_it_with_another_argument(run):
    ways = Counter()
    for child in repairs(run):
        base, failure = (run.record(parent) for parent in child.candidate.parent_ids)
        tried, steps = own_steps(base, failure), own_steps(base, child)
        assert child.candidate.rewrites == (*base.candidate.rewrites, *steps)
        source = run.source(base.candidate.source_sha).text
        assert run.source(child.candidate.source_sha).text == apply_steps(source, steps, CONTEXT)
        if len(steps) < len(tried):
            assert steps == tried[:-1]
            ways["undone"] += 1
        else:
            assert steps[:-1] == tried[:-1]
            assert steps[-1].name == tried[-1].name
            assert steps[-1] != tried[-1]
            ways["changed"] += 1
    assert min(ways["undone"], ways["changed"]) > 0


def test_some_repairs_are_correct_and_no_failure_gets_more_than_its_repairs(run):
    assert any(child.passed for child in repairs(run))
    assert max(Counter(child.candidate.parent_ids[1] for child in repairs(run)).values()) <= REPAIRS


def test_the_report_credits_a_repair_with_what_it_kept_of_the_failure(run):
    by_id = {item.id: item for item in run.records()}
    for child in repairs(run):
        steps = own_steps(by_id[child.candidate.parent_ids[0]], child)
        assert [name for name, _ in by_rewrite([child], by_id)] == list(dict.fromkeys(step.name for step in steps))


def test_other_arguments_leave_out_the_one_that_failed_and_all_apply():
    found = catalogue()["cache_hints"].candidates(fakes.SEED, CONTEXT)
    first, *rest = [RewriteStep(name="cache_hints", args=args.model_dump(mode="json")) for args in found]
    others = other_arguments(fakes.SEED, first, CONTEXT)
    assert others == rest
    assert len({apply_steps(fakes.SEED, [step], CONTEXT) for step in others}) == len(others) > 1


def test_a_rewrite_that_the_catalogue_lacks_has_no_other_arguments():
    with pytest.raises(RewriteError, match="no rewrite named 'grow'"):
        other_arguments(fakes.SEED, RewriteStep(name="grow"), CONTEXT)


def test_failures_of_a_model_whose_steps_are_unknown_are_left_to_others(tmp_path, monkeypatch):
    monkeypatch.setattr(fakes, "FakeEvaluator", Odd)
    found = searched(tmp_path / "run", settings(60), "fake")
    assert any(item.evaluation.status is EvalStatus.WRONG_VALUE for item in found.records())
    assert len(found.records()) == 60
    assert not repairs(found)


def test_what_tried_to_deceive_the_judge_is_not_repaired(tmp_path, monkeypatch):
    monkeypatch.setattr(fakes, "FakeEvaluator", Suspicious)
    found = searched(tmp_path / "run", settings(60))
    assert any(item.evaluation.status is EvalStatus.HARNESS_TAMPER for item in found.records())
    assert all(
        found.record(child.candidate.parent_ids[1]).evaluation.status is not EvalStatus.HARNESS_TAMPER
        for child in repairs(found)
    )


def test_by_default_nothing_is_repaired(tmp_path, strict):
    assert not repairs(searched(tmp_path / "run", settings(60, repair=0.0)))


def test_with_the_bandit_repair_is_paid_for_what_is_faster_than_the_correct_parent(tmp_path, strict):
    found = searched(tmp_path / "run", settings(90, kind="bandit"))
    children = repairs(found)
    assert children
    last = json.loads((found.path / "metrics.jsonl").read_text().splitlines()[-1])
    gains = [reward(child.speedup, found.record(child.candidate.parent_ids[0]).speedup) for child in children]
    assert last["credits"]["repair"]["tried"] == len(children)
    assert last["credits"]["repair"]["gain"] == pytest.approx(sum(gains))


@pytest.mark.parametrize(("kind", "policy"), [("fixed", "rule"), ("fixed", "async_rule"), ("bandit", "async_rule")])
def test_a_run_with_repair_and_crossover_resumes_to_the_same_end(tmp_path, strict, kind, policy):
    chosen = settings(60, kind=kind, repair=0.3, crossover=0.2)
    whole = searched(tmp_path / "whole", chosen, policy)
    made = Counter(item.candidate.operator for item in whole.records())
    assert min(made["repair"], made["crossover"]) > 0
    assert list(resumed_from_cuts(whole.path, (20, 34, 47, 61), tmp_path, policy)) == [state(whole.path)] * 4


def test_shares_that_are_more_than_a_batch_together_are_refused():
    search = {"tuning": {"share": 0.5}, "operators": {"repair": 0.6}}
    with pytest.raises(UsageError, match=r"search\.operators\.repair: 0\.6 of a batch and 0\.5 for tuning"):
        load_mapping({"task": "softmax", "search": search, "budget": {"evaluations": 5}})
