"""A campaign stops for the reason its budget gives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evaluator.errors import UsageError
from evaluator.types import EvalStatus, KernelSource, StageRecord
from evo.budget import Progress, reason_to_stop, roofline_share
from evo.campaign import Campaign
from evo.config import CampaignConfig
from evo.config_budget import BudgetConfig
from evo.spending import counted, gpu_seconds
from tests.evo import fakes
from tests.evo.configs import load_mapping

START = Progress(evaluations=0, generations=0, seconds=0.0, best_speedup=None, generations_without_gain=0)


@pytest.mark.parametrize(
    ("key", "limit", "below", "at"),
    [
        ("evaluations", 10, {"evaluations": 9}, {"evaluations": 10}),
        ("generations", 3, {"generations": 2}, {"generations": 3}),
        ("seconds", 5.0, {"seconds": 4.9}, {"seconds": 5.0}),
        ("gpu_seconds", 60.0, {"gpu_seconds": 59.9}, {"gpu_seconds": 60.0}),
        ("tokens", 1000, {"tokens": 999}, {"tokens": 1000}),
        ("dollars", 0.5, {"dollars": 0.49}, {"dollars": 0.5}),
        ("roofline_share", 0.8, {"roofline_share": 0.79}, {"roofline_share": 0.8}),
        ("target_speedup", 1.5, {"best_speedup": 1.49}, {"best_speedup": 1.5}),
        ("stagnation", 4, {"generations_without_gain": 3}, {"generations_without_gain": 4}),
    ],
)
def test_each_stopper_fires_at_its_limit_and_not_before(key, limit, below, at):
    budget = BudgetConfig.model_validate({key: limit})
    assert reason_to_stop(budget, replace(START, **below)) is None
    assert reason_to_stop(budget, replace(START, **at)) == key


def test_without_a_correct_candidate_no_target_is_reached():
    assert reason_to_stop(BudgetConfig(target_speedup=1.0, roofline_share=0.01), START) is None


def test_a_reached_target_is_named_before_a_spent_budget():
    done = Progress(evaluations=10, generations=1, seconds=1.0, best_speedup=2.0, generations_without_gain=0)
    assert reason_to_stop(BudgetConfig(evaluations=10, target_speedup=1.5), done) == "target_speedup"


class CountingPolicy(fakes.FakePolicy):
    """Costs 100 tokens and a cent for every request; counts from nothing in every process, like a ledger."""

    def __init__(self):
        self.requests = 0

    def propose(self, requests):
        self.requests += len(requests)
        return super().propose(requests)

    def summary(self):
        return {"requests": self.requests, "prompt_tokens": 80 * self.requests, "completion_tokens": 20 * self.requests,
                "dollars": 0.01 * self.requests}  # fmt: skip


class GpuJudge(fakes.FakeEvaluator):
    """Every candidate takes two seconds of a GPU and five beside it; `limit` candidates, then Ctrl-C."""

    campaign = None

    def __init__(self, limit=10**9):
        super().__init__()
        self._limit = limit

    def _judge(self, source):
        if len(self.judged) == self._limit:
            self.campaign.interrupt.requested = True
        stages = [("compile", 5.0), ("correct", 1.5), ("time", 0.5)]
        records = tuple(StageRecord(name=name, status=EvalStatus.PASSED, seconds=took) for name, took in stages)
        return super()._judge(source).model_copy(update={"evaluator": "gpu", "stages": records})


def made(path, budget, judge, mode="start"):
    data = {"task": "softmax", "seed": 5, "budget": budget, "search": {"offspring": 4}, "monitors": ()}
    parts = {"evaluator": judge, "policy": CountingPolicy()}
    start = mode == "start"
    found = Campaign(CampaignConfig.model_validate(data), path, **parts) if start else Campaign.resume(path, **parts)
    found.task, judge.campaign = fakes.task(), found
    return found


@pytest.mark.parametrize(("key", "limit"), [("tokens", 1000), ("dollars", 0.1), ("gpu_seconds", 31.0)])
def test_what_was_spent_survives_a_resume_and_stops_the_run(tmp_path, key, limit):
    first = made(tmp_path / "run", {key: limit, "evaluations": 500}, GpuJudge(limit=6)).run()
    assert first.interrupted
    second = made(tmp_path / "run", {}, GpuJudge(), "resume").run()
    assert second.stopped == key
    alone = made(tmp_path / "other", {key: limit, "evaluations": 500}, GpuJudge()).run()
    assert len(second.run.records()) <= len(alone.run.records())
    again = made(tmp_path / "run", {}, GpuJudge(), "resume").run()
    assert (again.stopped, len(again.run.records())) == (key, len(second.run.records()))


@pytest.mark.parametrize("budget", [{"gpu_seconds": 3.0}, {"tokens": 1, "evaluations": 500}])
def test_a_batch_that_was_begun_is_judged_to_its_end_when_a_budget_runs_out(tmp_path, budget):
    judge = GpuJudge()
    run = made(tmp_path / "run", budget, judge).run().run
    assert len(run.records()) == len(judge.judged) == 1 + 4
    assert run.generations()[-1].evaluations == 5


def test_only_stages_on_the_gpu_cost_gpu_seconds_and_answers_of_the_cache_cost_nothing():
    judged = GpuJudge()._judge(KernelSource(text=fakes.SEED))
    assert gpu_seconds(judged) == 2.0
    assert gpu_seconds(judged.model_copy(update={"cached": True})) == 0.0
    assert gpu_seconds(judged.model_copy(update={"evaluator": "cpu"})) == 0.0


def test_tokens_and_dollars_of_an_ensembles_members_are_summed():
    member = {"prompt_tokens": 5, "completion_tokens": 2, "dollars": 0.5, "tools": {"search_kernels": {"calls": 3}}}
    assert counted({"1 openai": member, "2 vllm": {"prompt_tokens": 1, "completion_tokens": 1}}) == (9, 0.5)
    assert counted(None) == (0, 0.0)


def test_the_share_of_the_roofline_is_the_mean_over_workloads_and_needs_all_of_them():
    evaluation = fakes.passed(KernelSource(text=fakes.SEED), 1.0, 1.0)
    (timing,) = evaluation.timings.values()
    near, far = (timing.model_copy(update={"speed_of_light_ms": light}) for light in (0.8, 0.2))
    shares = [
        roofline_share(evaluation.model_copy(update={"timings": timings}))
        for timings in ({"a": near}, {"a": near, "b": far}, {"a": near, "b": timing}, {})
    ]
    assert shares == [pytest.approx(0.8), pytest.approx(0.4), None, None]


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ({"gpu_seconds": 5}, "the cpu evaluator uses no GPU"),
        ({"evaluations": 5, "tokens": 5}, "no policy asks a language model"),
        ({"evaluations": 5, "dollars": 5}, "no policy has a price"),
        ({"roofline_share": 0.5}, "nothing here ends the campaign for certain"),
    ],
)
def test_a_limit_that_is_never_reached_is_refused(budget, words):
    with pytest.raises(UsageError, match=words):
        load_mapping({"task": "softmax", "budget": budget})
