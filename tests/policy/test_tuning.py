"""Values for a parent's tunables: asked for, read, refused, and proposed as a child of the same structure."""

from __future__ import annotations

import json

import pytest

from evaluator.source_hash import structure_hash
from evaluator.tunables import apply, extract
from evaluator.types import EvalStatus, KernelSource
from policy.answers.errors import AnswerError
from policy.answers.tunables import read_tuning, tunables_schema
from policy.model_children import Workshop
from policy.replay_policy import ReplayPolicy
from policy.trajectory import JudgedChild, RunMeta, turns_of
from policy.types import ParentView
from tests.policy import fake_server
from tests.policy.asking import SEED, request
from tests.policy.fake_server import FakeServer
from tests.policy.prompt_cases import judged, passed

pytest.importorskip("openai")

NAMES = extract(SEED).names
BLOCK, WARPS = "softmax_kernel.BLOCK_SIZE", "softmax_kernel.num_warps"


def parent(text=SEED, evaluation=None):
    return ParentView(
        candidate_id="c000000", source=KernelSource(text=text), evaluation=evaluation or passed(text, 1.5)
    )


def tuned(**changes):
    return json.dumps({"tunables": {f"softmax_kernel.{name}": value for name, value in changes.items()}})


def refused(answer, text=SEED, **more):
    with pytest.raises(AnswerError) as caught:
        read_tuning(answer, text, **more)
    return caught.value


def test_the_child_is_the_parent_with_the_values_of_the_answer():
    found = read_tuning(tuned(BLOCK_SIZE=512, num_warps=8), SEED)
    assert found.source == apply(SEED, {BLOCK: 512, WARPS: 8})
    assert found.config == {BLOCK: 512, WARPS: 8}
    assert found.tolerated == ()


def test_values_that_stay_may_be_named_and_are_no_change():
    now = extract(SEED).defaults
    assert read_tuning(json.dumps({"tunables": {**now, WARPS: 16}}), SEED).config == {WARPS: 16}


@pytest.mark.parametrize(
    "answer",
    [
        "Fewer warps wait.\n```json\n" + tuned(num_warps=2) + "\n```\nThat is all.",
        '{"reason": "few rows", "tunables": {"softmax_kernel.num_warps": "2"}}',
        "{'tunables': {'softmax_kernel.num_warps': 2.0,},}",
        '{"tunables": {"num_warps": 2}}',
        '<think>{"tunables": {"num_warps": 8}} is too many</think>{"tunables": {"num_warps": 2}}',
        tuned(num_warps=8) + "\nNo, better:\n" + tuned(num_warps=2),
    ],
)
def test_an_answer_may_be_wrapped_and_typed_as_models_do(answer):
    assert read_tuning(answer, SEED).config == {WARPS: 2}


def test_what_is_said_around_the_values_is_the_explanation():
    assert read_tuning("Fewer warps wait.\n" + tuned(num_warps=2), SEED).explanation == "Fewer warps wait."


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ("", "empty", "one JSON object"),
        ("More warps are better.", "bad_json", "one JSON object"),
        ('{"steps": []}', "bad_json", "tunables"),
        ('{"tunables": {}}', "bad_json", "names no tunable"),
        ('{"tunables": {"softmax_kernel.num_wraps": 2}}', "unknown_tunable", WARPS),
        ('{"tunables": {"other_kernel.num_warps": 2}}', "unknown_tunable", WARPS),
        (tuned(num_warps=3), "bad_value", "power of two"),
        (tuned(num_warps=0), "bad_value", "positive"),
        (tuned(num_warps=True), "bad_value", "1, 2, 4, 8, 16"),
        (tuned(num_warps="many"), "bad_value", "1, 2, 4, 8, 16"),
        (tuned(num_warps=None), "bad_value", "1, 2, 4, 8, 16"),
        (tuned(num_warps=4), "unchanged", "same program"),
    ],
)
def test_what_is_wrong_is_told_with_what_to_answer_instead(answer, kind, words):
    error = refused(answer)
    assert error.kind == kind
    assert words in str(error)


def test_an_answer_that_was_cut_off_is_no_answer():
    whole = tuned(num_warps=2)
    assert refused(whole[:-6], finish_reason="length").kind == "truncated"
    assert read_tuning(whole, SEED, finish_reason="length").config == {WARPS: 2}


def test_tunables_in_a_kept_region_stay():
    line = next(line for line in SEED.split("\n") if "BLOCK_SIZE = " in line)
    kept = SEED.replace(line, f"    # kernevo: keep begin\n{line}\n    # kernevo: keep end")
    assert refused(tuned(BLOCK_SIZE=512), kept).kind == "outside_region"
    assert read_tuning(tuned(num_warps=2), kept).config == {WARPS: 2}


def test_every_answer_that_the_schema_allows_can_be_read_or_changes_nothing():
    space = tunables_schema(SEED)["properties"]["tunables"]["properties"]
    assert set(space) == set(NAMES)
    for name, values in space.items():
        for value in values["enum"]:
            if value != extract(SEED).defaults[name]:
                assert read_tuning(json.dumps({"tunables": {name: value}}), SEED).config == {name: value}


def test_a_share_of_the_requests_about_correct_parents_asks_for_values():
    workshop = Workshop()
    asked = [workshop.phase(request(seed, parents=(parent(),)), 0.3) for seed in range(400)]
    assert 0.2 < asked.count("tune") / len(asked) < 0.4
    assert set(asked) == {"tune", "generate"}
    assert workshop.phase(request(3, parents=(parent(),)), 0.0) == "generate"


def test_values_are_asked_of_correct_parents_with_tunables_alone():
    workshop = Workshop("full")
    wrong = parent(evaluation=judged(SEED, EvalStatus.WRONG_VALUE))
    bare = parent("class ModelNew:\n    pass\n")
    unjudged = ParentView(candidate_id="c1", source=KernelSource(text=SEED))
    phases = [workshop.phase(request(parents=(view,)), 1.0) for view in (wrong, bare, unjudged, parent())]
    assert phases == ["generate", "generate", "generate", "tune"]


@pytest.mark.parametrize("form", ["structured", "full"])
def test_the_model_is_asked_for_values_and_its_answer_is_a_child_of_the_same_structure(ask, form):
    with FakeServer() as server:
        proposals, summary = ask(server, request(seed=1, parents=(parent(),)), form=form, tune=1.0)
        (body,) = server.requests
    (proposal,) = proposals
    assert set(body["response_format"]["json_schema"]["schema"]["properties"]) == {"tunables"}
    assert "Choose values for the parent's tunables" in body["messages"][1]["content"]
    assert proposal.policy == "openai"
    assert apply(SEED, proposal.tunables) == proposal.source.text
    assert structure_hash(proposal.source.text) == structure_hash(SEED)
    assert proposal.sampling["form"] == "tunables"
    assert all(name in proposal.explanation for name in proposal.tunables)
    assert summary["proposed"] == 1


def test_values_that_cannot_be_used_are_sent_back_once(ask):
    script = [fake_server.says(tuned(num_warps=3)), fake_server.says(tuned(num_warps=2))]
    with FakeServer(script) as server:
        (proposal,), summary = ask(server, request(parents=(parent(),)), tune=1.0)
        assert "3 is no power of two" in str(server.requests[1]["messages"])
        assert "tunables" in str(server.requests[1]["response_format"])
    assert proposal.tunables == {WARPS: 2}
    assert summary["repaired"] == 1


def test_recorded_values_are_replayed_as_values():
    text = apply(SEED, {WARPS: 8})
    child = JudgedChild(
        candidate_id="c000001",
        parent_ids=("c000000",),
        generation=1,
        operator="rewrite",
        source=text,
        parent_source=SEED,
        messages=({"role": "user", "content": "?"},),
        answer=tuned(num_warps=8),
        evaluation=passed(text, 1.7),
    )
    policy = ReplayPolicy(turns_of([child], RunMeta(run="r", task="softmax")))
    ((proposal,),) = policy.propose([request(parents=(parent(),))])
    assert proposal.tunables == {WARPS: 8}
