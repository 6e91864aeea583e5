"""What a run learned is written down, adds up, and is used by the next one."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter

import numpy as np
import pytest

from evaluator.errors import UsageError
from evaluator.task import load_task
from evaluator.types import KernelSource
from evo.build import make_policy
from evo.campaign import Campaign
from evo.config import CampaignConfig
from evo.playbook import FILE, GIVEN, Entry, Playbook, expectations, notes, of_run, priors
from evo.run import Run
from policy.model_children import Workshop
from policy.rule_policy import RulePolicy
from policy.types import ParentView, ProposalRequest
from tests.evo import fakes
from tests.evo.configs import load_mapping
from tests.evo.driver import campaign


def entry(name="whole_row", context="dram", tried=10, better=4, credit=1.0, **more):
    place = {"family": "reduction", "hardware": "h200", "kind": "modelled", "context": context, "name": name}
    sums = {"tried": tried, "correct": tried, "better": better, "credit": credit, "best_gain": 1.5 if better else 1.0}
    return Entry.model_validate({**place, **sums, "what": "rewrite", **more})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return campaign(tmp_path_factory.mktemp("playbook") / "run", "start").run().run


def save(path, *entries):
    path.write_text(Playbook(runs=("before",), entries=entries).model_dump_json())
    return str(path)


def test_a_run_leaves_what_each_operator_and_rewrite_earned_by_what_bound_the_parent(run):
    book = Playbook.load(run.path)
    assert book == of_run(run)
    assert book.runs == ("run",)
    children = [record for record in run.records() if record.candidate.parent_ids]
    expected = Counter(
        (record.candidate.operator, run.record(record.candidate.parent_ids[0]).evaluation.profile.bottleneck)
        for record in children
    )
    tried = {(one.name, one.context): one.tried for one in book.entries if one.what == "operator"}
    assert tried == dict(expected)
    assert {one.name for one in book.entries if one.what == "rewrite"} == {"grow"}
    assert {(one.family, one.hardware, one.kind) for one in book.entries} == {("reduction", "h200", "modelled")}


def test_the_credit_of_a_rewrite_is_what_its_children_gained_over_parent_and_baseline(run):
    gained = 0.0
    for record in run.records():
        if record.candidate.operator == "rewrite" and record.passed:
            parent = run.record(record.candidate.parent_ids[0])
            gained += max(0.0, math.log(record.speedup / max(1.0, parent.speedup or 0.0)))
    credit = math.fsum(one.credit for one in of_run(run).entries if one.what == "rewrite")
    assert credit == pytest.approx(gained)


def test_the_report_shows_the_playbook(run):
    page = (run.path / "report.html").read_text()
    assert "<h3>Playbook</h3>" in page
    assert "<td>grow</td><td>rewrite</td>" in page


def test_a_run_adds_to_the_playbook_that_it_was_given_and_a_resume_adds_nothing_twice(tmp_path):
    given = save(tmp_path / "mine.json", entry("grow", "dram", tried=1000))
    data = {"task": "softmax", "budget": {"evaluations": 20}, "search": {"playbook": given}, "monitors": ()}
    made = Campaign(
        CampaignConfig.model_validate(data),
        tmp_path / "run",
        evaluator=fakes.FakeEvaluator(),
        policy=fakes.FakePolicy(),
    )
    made.task = fakes.task()
    made.run()
    first = (tmp_path / "run" / FILE).read_text()
    book = Playbook.load(tmp_path / "run")
    assert book.runs == ("before", "run")
    grown = [one for one in book.entries if (one.name, one.context) == ("grow", "dram")]
    assert len(grown) == 1
    assert grown[0].tried > 1000
    (tmp_path / "mine.json").unlink()
    campaign(tmp_path / "run", "resume").run()
    assert (tmp_path / "run" / FILE).read_text() == first


def test_priors_favour_what_earned_more_than_the_average_and_trust_few_tries_little():
    found = priors(
        [entry("a", tried=40, credit=8.0), entry("b", tried=40, credit=0.0, better=0), entry("c", tried=1, credit=0.5)]
    )
    assert found["dram"]["a"] > 1.5
    assert found["dram"]["b"] == 0.25
    assert 1 < found["dram"]["c"] < 2.0
    assert found[""] == found["dram"]
    assert priors([entry(better=0, credit=0.0)]) == priors([]) == {}


def test_priors_of_a_context_come_from_that_context():
    found = priors([entry("a", "dram", credit=4.0), entry("a", "latency", credit=0.0, better=0), entry("b", "latency")])
    assert found["dram"]["a"] > 1 > found["latency"]["a"]
    assert found["latency"]["a"] < found[""]["a"] < found["dram"]["a"]


def test_operators_are_expected_to_earn_what_they_earned_and_few_tries_of_it():
    of = {"what": "operator"}
    book = [entry("tune", tried=30, credit=6.0, **of), entry("tune", "l2", tried=10, credit=2.0, **of)]
    found = expectations([*book, entry("repair", tried=2, better=0, credit=0.0, **of), entry("whole_row")])
    assert set(found) == {"tune", "repair"}
    assert (found["tune"].tries, found["tune"].gain) == (4, pytest.approx(0.2))
    assert found["tune"].top == pytest.approx(math.log(1.5))
    assert (found["repair"].tries, found["repair"].gain, found["repair"].top) == (2, 0, 0)


@pytest.mark.parametrize(("charge", "better"), [("candidates", True), ("costs", False)])
def test_the_bandit_of_a_campaign_begins_with_what_operators_earned_before(tmp_path, charge, better):
    of = {"what": "operator"}
    book = [entry("tune", tried=40, better=0, credit=0.0, **of), entry("rewrite", tried=40, credit=8.0, **of)]
    operators = {"kind": "bandit", "charge": charge, "exploration": 0.1}
    search = {"playbook": save(tmp_path / "book.json", *book), "operators": operators, "offspring": 8}
    data = {"task": "softmax", "budget": {"evaluations": 9}, "search": search, "monitors": ()}
    made = Campaign(
        CampaignConfig.model_validate(data),
        tmp_path / "run",
        evaluator=fakes.FakeEvaluator(),
        policy=fakes.FakePolicy(),
    )
    made.task = fakes.task()
    places = Counter(record.candidate.operator for record in made.run().run.records())
    assert (places["rewrite"] > places["tune"]) == better


def test_notes_name_the_best_first_and_warn_of_what_never_helped():
    said = notes(
        [entry("b", credit=0.2), entry("a", credit=2.0), entry("c", better=0, credit=0.0), entry(what="operator")]
    )
    assert said == [
        "a, parent bound by dram: faster in 4 of 10 tries, at best 1.50x (modelled, h200)",
        "b, parent bound by dram: faster in 4 of 10 tries, at best 1.50x (modelled, h200)",
        "c, parent bound by dram: not faster in any of 10 tries",
    ]


def test_only_the_same_family_gpu_and_kind_of_latency_is_listened_to():
    same = entry(hardware="NVIDIA H200", kind="measured")
    others = [entry(family="matmul", kind="measured"), entry(hardware="a100", kind="measured"), entry()]
    assert Playbook(entries=(same, *others)).about("reduction", "h200", "measured") == [same]


def asked(task, seed):
    parent = ParentView(candidate_id="c0", source=KernelSource(text=task.seed_source))
    return ProposalRequest(request_id="r", task=task, parents=(parent,), operator="rewrite", seed=seed)


def campaign_with(book, policy):
    """A config with a playbook."""
    return load_mapping(
        {"task": "softmax", "policy": policy, "budget": {"evaluations": 5}, "search": {"playbook": book}}
    )


def drawn(policy, task):
    """How often each rewrite is proposed for the seed."""
    return Counter(policy.propose([asked(task, seed)])[0][0].rewrites[0].name for seed in range(60))


def test_the_rule_policy_of_a_campaign_draws_by_its_playbook(tmp_path):
    task = load_task("softmax")
    plain = Counter(
        step.name for seed in range(60) for step in RulePolicy(max_steps=1).propose([asked(task, seed)])[0][0].rewrites
    )
    rare, common = plain.most_common()[-1][0], plain.most_common(1)[0][0]
    book = save(tmp_path / FILE, entry(rare, tried=50, credit=50.0), entry(common, tried=500, better=0, credit=0.0))
    search = {"search": {"playbook": book}}
    config = load_mapping(
        {"task": "softmax", "policy": {"type": "rule", "max_steps": 1}, "budget": {"evaluations": 5}, **search}
    )
    policy = make_policy(config)
    taught = Counter(step.name for seed in range(60) for step in policy.propose([asked(task, seed)])[0][0].rewrites)
    assert taught[rare] > 2 * plain[rare]
    assert taught[common] < plain[common] / 2


def test_prompts_of_a_campaign_hold_the_playbooks_notes(tmp_path):
    from evo.build import _workshop

    search = {"search": {"playbook": save(tmp_path / FILE, entry("whole_row"))}}
    config = load_mapping(
        {"task": "softmax", "policy": {"type": "vllm", "model": "m"}, "budget": {"evaluations": 5}, **search}
    )
    workshop = _workshop(config.policies[0], config)
    assert isinstance(workshop, Workshop)
    shown = workshop.prompt(asked(load_task("softmax"), 1), 100_000).messages[-1].content
    assert "# Notes from earlier searches" in shown
    assert "- whole_row, parent bound by dram: faster in 4 of 10 tries, at best 1.50x (modelled, h200)" in shown


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "No such file"),
        ("{", "no playbook of this version of Kernevo"),
        (json.dumps({"schema_version": 7}), "a playbook of version 7, not 1"),
    ],
)
def test_a_playbook_that_cannot_be_read_is_refused_with_the_key(tmp_path, text, words):
    path = tmp_path / FILE
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=rf"(?s)playbook.*{words}"):
        load_mapping({"task": "softmax", "budget": {"evaluations": 5}, "search": {"playbook": str(path)}})


def test_a_run_without_a_correct_candidate_leaves_an_empty_playbook(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "copy")
    lines = (tmp_path / "copy" / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "copy" / "journal.jsonl").write_bytes(b"".join(lines[:2]))
    assert of_run(Run.load(tmp_path / "copy")) == Playbook()
    assert not (run.path / GIVEN).exists()
    assert np.isfinite([one.credit for one in of_run(run).entries]).all()
