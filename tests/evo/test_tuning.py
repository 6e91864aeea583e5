"""What Optuna is told of judged configs, and what it makes of them."""

from __future__ import annotations

import math
from collections import Counter
from itertools import islice
from pathlib import Path
from unittest import mock

import optuna
import pytest
from optuna.trial import TrialState

from evaluator.backends.forecast import Forecaster
from evaluator.errors import TaskError, UsageError
from evaluator.testing import SEED, TASK
from evaluator.tunables import apply, extract
from evaluator.types import EvalStatus, KernelSource
from evo.campaign import Campaign
from evo.candidate import Candidate, Record
from evo.config import CampaignConfig
from evo.config_search import TuningConfig
from evo.prior import ModelPrior, preferred
from evo.run_dir import RunDir
from evo.tuning import CONFIRM, SCREEN, Tuner
from tests.evo import fakes
from tests.evo.configs import load_mapping

SPACE = extract(fakes.SEED)
BLOCK = next(tunable.name for tunable in SPACE.tunables if tunable.name.endswith("BLOCK_SIZE"))


def record(number, evaluation, **config):
    values = {**SPACE.defaults, **{BLOCK: 256}, **config}
    candidate = Candidate(
        id=f"c{number:06d}", generation=0, operator="tune", source_sha="s", ast_hash=f"a{number}", structure="x" * 40,
        config=values,
    )  # fmt: skip
    return Record(candidate=candidate, evaluation=evaluation)


def measured(speedup, tier="confirm", screened=None):
    found = fakes.passed(KernelSource(text=fakes.SEED), 1 / speedup, 1.0)
    (timing,) = found.timings.values()
    update = {"kind": "measured", "tier": tier, "screened": screened or speedup}
    return found.model_copy(update={"timings": {"w": timing.model_copy(update=update)}})


def told(*evaluations, sampler="tpe", choices=None):
    tuner = Tuner(TuningConfig(sampler=sampler), lambda sha: fakes.SEED)
    blocks = choices or next(tunable for tunable in SPACE.tunables if tunable.name == BLOCK).choices
    for number, evaluation in enumerate(evaluations):
        block = blocks[number % len(blocks)]
        tuner.tell(record(number, evaluation, **{BLOCK: block}), None)
    return tuner


def studies(tuner, path: Path):
    RunDir(path.parent).write_parts_atomically(path, tuner.export())
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
    return optuna.load_study(study_name="x" * 12, storage=storage)


def failure(status):
    return fakes.failed(KernelSource(text=fakes.SEED), status, "no")


def test_the_screen_tier_is_the_intermediate_value_and_what_ends_there_far_behind_is_pruned(tmp_path):
    tuner = told(measured(2.0, screened=1.9), measured(1.5), measured(1.2, "screen"), measured(1.9, "screen"))
    trials = studies(tuner, tmp_path / "optuna.journal").trials
    assert [trial.state for trial in trials] == [
        TrialState.COMPLETE, TrialState.COMPLETE, TrialState.PRUNED, TrialState.COMPLETE,
    ]  # fmt: skip
    assert trials[0].intermediate_values == {SCREEN: pytest.approx(math.log(1.9)), CONFIRM: pytest.approx(math.log(2))}
    assert trials[2].intermediate_values == {SCREEN: pytest.approx(math.log(1.2))}


def test_where_nothing_is_confirmed_screened_configs_are_whole_trials(tmp_path):
    tuner = told(measured(2.0, "screen"), measured(1.5, "screen"))
    assert {trial.state for trial in studies(tuner, tmp_path / "o").trials} == {TrialState.COMPLETE}


def test_what_does_not_build_is_a_violated_constraint_and_what_is_wrong_is_not(tmp_path):
    statuses = [EvalStatus.COMPILE_ERROR, EvalStatus.RESOURCE_LIMIT, EvalStatus.WRONG_VALUE]
    tuner = told(measured(2.0), *map(failure, statuses))
    violated = [max(trial.constraints.values()) for trial in studies(tuner, tmp_path / "o").trials]
    assert violated == [0.0, 2.0, 1.0, 0.0]


def test_tpe_keeps_away_from_large_blocks_once_they_do_not_build():
    blocks = next(tunable for tunable in SPACE.tunables if tunable.name == BLOCK).choices
    small = measured(1.2), measured(1.1), measured(1.3)
    broken = [failure(EvalStatus.RESOURCE_LIMIT)] * (len(blocks) - 3)
    tuner = told(*small, *broken)
    large = [config[BLOCK] in blocks[-2:] for seed in range(10) for config in islice(tuner.suggest("x" * 40, seed), 3)]
    assert sum(large) / len(large) < 0.3


def test_a_study_file_of_an_older_version_or_a_broken_one_is_replaced_whole(tmp_path):
    path = tmp_path / "optuna.journal"
    path.write_text("not what Optuna writes\n")
    study = studies(told(measured(2.0), measured(1.5)), path)
    assert [math.exp(trial.value) for trial in study.trials] == [pytest.approx(2.0), pytest.approx(1.5)]
    assert study.user_attrs == {"structure": "x" * 40}
    assert study.best_trial.user_attrs["config"] == {
        **SPACE.defaults,
        BLOCK: study.trials[0].user_attrs["config"][BLOCK],
    }
    assert apply(fakes.SEED, study.best_trial.user_attrs["config"])


@pytest.mark.parametrize("left", [None, '{"op_code": 99}\n'])
def test_a_resume_brings_back_studies_that_are_missing_or_from_an_older_version(tmp_path, left):
    campaign(tmp_path / "run", None)
    path = tmp_path / "run" / "optuna.journal"
    whole = len(path.read_text().splitlines())
    path.unlink()
    if left is not None:
        path.write_text(left)
    run = campaign(tmp_path / "run", None, mode="resume").run
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
    names = {study.study_name for study in storage.get_all_studies()}
    assert names == {record.candidate.structure[:12] for record in run.records()}
    assert len(path.read_text().splitlines()) == whole


@pytest.mark.parametrize("sampler", ["tpe", "random", "cmaes", "gp", "grid"])
def test_every_sampler_goes_on_after_failures_and_screened_trials(sampler):
    evaluations = [measured(1.0), failure(EvalStatus.COMPILE_ERROR), measured(1.1, "screen"), measured(1.2)]
    tuner = told(*evaluations, failure(EvalStatus.TIMEOUT), measured(0.9, "screen"), sampler=sampler)
    assert len(list(islice(tuner.suggest("x" * 40, 7), 4))) == 4


class FakePrior:
    """Expects the true latency, or what `says` gives."""

    def __init__(self, says=lambda source: fakes.latency(source.text)):
        self._says = says
        self.asked = []

    def latencies(self, sources):
        self.asked.append(len(sources))
        return [self._says(source) for source in sources]

    def close(self):
        self.closed = True


def campaign(path, prior, pool=4, evaluator=None, mode="start"):
    tuning = {"share": 1.0, "prior_pool": pool}
    data = {"task": "softmax", "seed": 2, "budget": {"evaluations": 9}, "monitors": (), "search": {"tuning": tuning}}
    parts = {"evaluator": evaluator or fakes.FakeEvaluator(), "policy": fakes.FakePolicy()}
    config = CampaignConfig.model_validate(data)
    made = Campaign(config, path, **parts) if mode == "start" else Campaign.resume(path, **parts)
    made.task = fakes.task()
    with mock.patch("evo.build.make_prior", return_value=prior):
        return made.run()


def test_the_prior_spends_the_budget_on_configs_that_promise_more(tmp_path):
    prior = FakePrior()
    guided = campaign(tmp_path / "guided", prior).run.records()
    blind = campaign(tmp_path / "blind", None).run.records()
    assert len(guided) == len(blind) == 9
    assert prior.asked
    assert max(prior.asked) > 8
    assert prior.closed
    mean = [sum(record.speedup or 0 for record in records) / 9 for records in (guided, blind)]
    assert mean[0] > 1.1 * mean[1]


def test_of_what_the_prior_would_skip_a_tenth_is_measured():
    latencies = [float(index) for index in range(40)]
    explored = [len([index for index in preferred(latencies, 10, seed) if index >= 10]) for seed in range(300)]
    assert all(len(preferred(latencies, 10, seed)) == 10 for seed in range(20))
    assert 2.5 < sum(explored) / len(explored) < 3.5
    assert {index for seed in range(300) for index in preferred(latencies, 10, seed)} >= set(range(10, 40))


def test_what_the_prior_knows_nothing_of_is_measured_and_what_does_not_build_is_not():
    chosen = [preferred([math.inf, None, 0.1, 0.2, None, math.inf], 3, seed) for seed in range(50)]
    assert Counter(map(tuple, chosen)).most_common(1)[0][0] == (1, 2, 4)


def test_a_cost_model_that_cannot_be_used_leaves_the_tuner_to_itself(caplog):
    def make():
        raise TaskError("the reference fails", "mend it")

    prior = ModelPrior(make)
    sources = [KernelSource(text=fakes.SEED)]
    assert prior.latencies(sources) == prior.latencies(sources) == [None]
    assert [record.getMessage() for record in caplog.records] == [
        "tuning goes on without the cost model: the reference fails"
    ]


def test_the_cost_model_is_asked_once_for_each_source_and_calls_what_does_not_compile_infinitely_slow():
    judge = fakes.FakeEvaluator()
    prior = ModelPrior(lambda: judge)
    good = KernelSource(text=fakes.SEED)
    broken = KernelSource(text=fakes.SEED.replace("BLOCK_SIZE = 256", "BLOCK_SIZE = 4096"))
    assert prior.latencies([good, broken]) == [fakes.latency(good.text), math.inf]
    assert prior.latencies([broken, good]) == [math.inf, fakes.latency(good.text)]
    assert len(judge.judged) == 2


def test_the_real_cost_model_forecasts_without_checking():
    with Forecaster(TASK, {"cache": False, "workers": 1, "timeout_s": 20.0}) as forecaster:
        prior = ModelPrior(lambda: forecaster)
        latency, broken = prior.latencies([KernelSource(text=SEED), KernelSource(text="import torch\n")])
    assert 0 < latency < 100
    assert broken == math.inf


def test_the_cpu_evaluator_takes_no_prior():
    tuning = {"search": {"tuning": {"prior": "cost_model"}}}
    with pytest.raises(UsageError, match="the cpu evaluator's latencies are the cost model's own"):
        load_mapping({"task": "softmax", "budget": {"evaluations": 3}, **tuning})
