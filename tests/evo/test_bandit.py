"""The bandit pays for gains over parent and baseline, and gives requests to who earns them."""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evo.bandit import Bandit, reward
from evo.campaign import Campaign
from evo.config_search import OperatorsConfig, SearchConfig
from evo.monitors import Step
from evo.monitors.console import credits_line
from evo.run import Run
from policy.ensemble import EnsemblePolicy
from tests.evo import fakes
from tests.evo.driver import campaign, config
from tests.evo.made import record
from tests.evo.test_resume import resumed_from_cuts, state

PARENT = record(0, 1.5)


def bandit(**settings):
    return Bandit(OperatorsConfig(kind="bandit", **settings))


def child(speedup, arm="tune", seconds=0.0, **facts):
    return record(1, speedup, arm=arm, seconds=seconds, **facts)


@pytest.mark.parametrize(
    ("made", "parent", "earned"),
    [
        (2.0, 1.0, math.log(2)),
        (2.0, 0.5, math.log(2)),
        (0.9, 0.5, 0),
        (1.4, 1.5, 0),
        (None, 1.0, 0),
        (2.0, None, math.log(2)),
    ],
)
def test_a_child_earns_what_it_is_faster_than_parent_and_baseline(made, parent, earned):
    assert reward(made, parent) == pytest.approx(earned)


@given(st.floats(0.1, 10), st.floats(0.1, 10))
def test_no_child_earns_less_than_nothing(made, parent):
    assert reward(made, parent) >= 0


def test_what_has_no_parent_is_nobodys_merit():
    made = bandit()
    made.tell(child(3.0), None)
    assert not made.credits


def test_credit_counts_tries_passes_and_gains_by_arm():
    made = bandit()
    for one in (child(3.0), child(None), child(1.2, "rewrite/rule")):
        made.tell(one, PARENT)
    tune, rule = made.credits["tune"], made.credits["rewrite/rule"]
    assert (tune.tried, tune.passed, rule.tried, rule.passed) == (2, 1, 1, 1)
    assert tune.gain == pytest.approx(math.log(2))
    assert rule.gain == 0


def test_old_gains_fade_and_the_credit_of_the_report_does_not():
    made = bandit(decay=0.5)
    made.tell(child(3.0), PARENT)
    made.fade()
    credit = made.credits["tune"]
    assert credit.recent_gain == pytest.approx(credit.gain / 2)
    assert (credit.tried, credit.recent_tried) == (1, 0.5)


def test_everybody_is_tried_before_anybody_again():
    assert Counter(bandit().divide(["a", "b", "c"], 3)) == {"a": 1, "b": 1, "c": 1}


def test_more_places_go_to_the_arm_that_gains_and_none_is_forgotten():
    made = bandit()
    shares = Counter()
    for _ in range(40):
        places = made.divide(["good", "bad"], 8)
        shares.update(places)
        for arm in places:
            made.tell(child(1.6 if arm == "good" else 1.4, arm), PARENT)
        made.fade()
    assert shares["good"] > 4 * shares["bad"] > 0


def test_one_lucky_gain_does_not_take_the_batch_from_the_others():
    made = bandit()
    made.tell(child(3.0, "lucky"), PARENT)
    for arm in ("lucky", "other"):
        for _ in range(3):
            made.tell(child(1.0, arm), PARENT)
    made.tell(child(1.6, "other"), PARENT)
    assert min(Counter(made.divide(["lucky", "other"], 8)).values()) >= 2


def test_an_arm_that_no_longer_gains_loses_its_share():
    made = bandit()
    for arm in ("old", "new"):
        for _ in range(20):
            made.tell(child(2.0 if arm == "old" else 1.0, arm), PARENT)
        made.fade()
    shares = Counter()
    for _ in range(60):
        places = made.divide(["old", "new"], 8)
        shares = Counter(places)
        for arm in places:
            made.tell(child(2.0 if arm == "new" else 1.0, arm), PARENT)
        made.fade()
    assert shares["new"] > shares["old"]


def test_with_costs_a_cheap_gain_beats_the_same_gain_that_took_long():
    made = bandit(charge="costs", exploration=0.0)
    made.tell(child(2.0, "slow", seconds=10.0), PARENT)
    made.tell(child(2.0, "quick", seconds=1.0), PARENT)
    assert set(made.divide(["slow", "quick"], 4)) == {"quick"}


def test_with_costs_tokens_are_paid_for():
    made = bandit(charge="costs", exploration=0.0, token_seconds=0.01)
    sampling = {"prompt_tokens": 900, "completion_tokens": 100}
    made.tell(child(2.0, "rewrite/llm", seconds=1.0, sampling=sampling), PARENT)
    made.tell(child(2.0, "rewrite/rule", seconds=5.0), PARENT)
    assert made.credits["rewrite/llm"].tokens == 1000
    assert set(made.divide(["rewrite/llm", "rewrite/rule"], 2)) == {"rewrite/rule"}


def test_without_costs_the_clock_decides_nothing():
    first, second = bandit(), bandit()
    for made, seconds in ((first, 1.0), (second, 99.0)):
        made.tell(child(2.0, "a", seconds=seconds), PARENT)
        made.tell(child(2.1, "b", seconds=1.0), PARENT)
    assert first.divide(["a", "b"], 9) == second.divide(["a", "b"], 9)


def test_a_policy_that_never_answers_loses_its_turn():
    made = bandit()
    made.tell(child(2.0, "tune"), PARENT)
    for _ in range(10):
        made.miss("rewrite/silent", Counter(made.divide(["tune", "rewrite/silent"], 4))["rewrite/silent"])
    assert Counter(made.divide(["tune", "rewrite/silent"], 4))["tune"] == 4


def test_another_list_of_operators_than_the_run_began_with_changes_only_who_is_asked():
    made = bandit()
    made.tell(child(2.0, "gone"), PARENT)
    assert set(made.divide(["here", "new"], 6)) == {"here", "new"}
    assert made.divide([], 3) == []
    assert "gone" in made.credits


class Idle(fakes.FakePolicy):
    name = "idle"

    def propose(self, requests):
        return [[] for _ in requests]


class Harmful(fakes.FakePolicy):
    """Children that the judge finds wrong."""

    name = "harmful"

    def _child(self, request):
        found = super()._child(request)
        text = found.source.text
        wrong = (13 - sum(fakes.variant(text)), *fakes.variant(text))
        changed = text.replace(f"VARIANT = {fakes.variant(text)!r}", f"VARIANT = {wrong!r}")
        return found.model_copy(
            update={"source": found.source.model_copy(update={"text": changed}), "policy": "harmful"}
        )


def settings(evaluations=60, **operators):
    search = SearchConfig.model_validate(
        {"population": 6, "offspring": 6, "operators": {"kind": "bandit", **operators}}
    )
    return config(evaluations).model_copy(update={"search": search})


def made(path, policy, chosen):
    running = Campaign(chosen, path, evaluator=fakes.FakeEvaluator(), policy=policy)
    running.task = fakes.task()
    return running


def test_in_a_campaign_the_useful_member_of_an_ensemble_is_asked_more_than_the_harmful_one(tmp_path):
    policy = EnsemblePolicy([(fakes.FakePolicy(), 1.0), (Harmful(), 9.0)])
    run = made(tmp_path / "run", policy, settings(90)).run().run
    arms = Counter(item.candidate.arm for item in run.records())
    assert arms["rewrite/1 fake"] > arms["rewrite/2 harmful"] > 0
    assert arms["tune"] > 0


def test_with_fixed_shares_members_are_drawn_by_weight_and_credited_all_the_same(tmp_path):
    policy = EnsemblePolicy([(fakes.FakePolicy(), 1.0), (Harmful(), 9.0)])
    run = made(tmp_path / "run", policy, settings(60, kind="fixed")).run().run
    arms = Counter(item.candidate.arm for item in run.records())
    assert arms["rewrite/2 harmful"] > arms["rewrite/1 fake"]
    last = json.loads((run.path / "metrics.jsonl").read_text().splitlines()[-1])
    assert {arm: credit["tried"] for arm, credit in last["credits"].items()} == {a: n for a, n in arms.items() if a}


def test_a_member_without_answers_does_not_hold_up_the_batch(tmp_path):
    policy = EnsemblePolicy([(fakes.FakePolicy(), 1.0), (Idle(), 1.0)])
    result = made(tmp_path / "run", policy, settings(50)).run()
    assert result.stopped == "evaluations"
    assert len(result.run.records()) == 50


@pytest.mark.parametrize("policy", ["fake", "async"])
def test_a_run_with_the_bandit_resumes_from_every_part_of_its_journal_to_the_same_end(tmp_path, policy):
    whole = tmp_path / "whole"
    running = campaign(whole, "start", policy=policy)
    running.config = settings(40)
    running.run()
    assert len({item.candidate.arm for item in Run.load(whole).records()}) == 3
    assert list(resumed_from_cuts(whole, (9, 20, 33), tmp_path, policy)) == [state(whole)] * 3


def test_a_run_resumes_with_another_list_of_policies(tmp_path):
    path = tmp_path / "run"
    made(path, EnsemblePolicy([(fakes.FakePolicy(), 1.0), (Harmful(), 1.0)]), settings(30)).run()
    resolved = json.loads((path / "config.resolved.json").read_text())
    resolved["budget"]["evaluations"] = 50
    (path / "config.resolved.json").write_text(json.dumps(resolved))
    again = Campaign.resume(path, evaluator=fakes.FakeEvaluator(), policy=fakes.FakePolicy())
    again.task = fakes.task()
    arms = Counter(item.candidate.arm for item in again.run().run.records()[30:])
    assert set(arms) <= {"tune", "rewrite/fake"}
    assert arms["rewrite/fake"] > 0


def test_the_console_names_every_arm_with_its_gain(tmp_path):
    run = made(tmp_path / "run", fakes.FakePolicy(), settings(30)).run().run
    last = json.loads((run.path / "metrics.jsonl").read_text().splitlines()[-1])
    line = credits_line(Step.model_validate(last))
    assert "tune " in line
    assert "rewrite/fake " in line
    assert "gain 0." in line
