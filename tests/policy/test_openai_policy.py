"""The policy on an OpenAI-compatible server: what it asks and what it makes of answers."""

from __future__ import annotations

import pytest

from evaluator.source_hash import ast_hash
from evaluator.types import KernelSource
from policy.model_children import Workshop
from policy.rewrites import RewriteContext, apply_steps
from policy.rewrites.catalogue import rewrite_named
from policy.rule_policy import structured_answer
from policy.testing import PolicyTestCase
from policy.types import ParentView, RewriteStep
from tests.policy import fake_server
from tests.policy.asking import SEED, TASK, policy_for, request
from tests.policy.fake_server import FakeServer

pytest.importorskip("openai")


class TestOpenAIPolicy(PolicyTestCase):
    @pytest.fixture(autouse=True)
    def server(self):
        with FakeServer() as self.fake:
            yield

    def make_policy(self):
        return policy_for(self.fake)


def test_an_answer_brings_what_learning_needs(ask):
    with FakeServer() as server:
        (proposal,), summary = ask(server, request(seed=7), prices=(1.0, 2.0))
    sampling = proposal.sampling
    told = proposal.answer.encode()
    assert sampling["answer_token_ids"] == tuple(told)
    assert sampling["prompt_token_ids"] == tuple(range(10))
    assert sampling["logprobs"] == (-0.5,) * len(told)
    assert (sampling["finish_reason"], sampling["temperature"], sampling["seed"]) == ("stop", 0.8, 7)
    assert sampling["dollars"] == pytest.approx((10 * 1.0 + len(told) * 2.0) / 1e6)
    assert summary["dollars"] == pytest.approx(sampling["dollars"], abs=1e-6)
    assert (summary["prompt_tokens"], summary["completion_tokens"]) == (10, len(told))


def test_several_children_are_samples_of_one_request_and_share_its_cost(ask):
    with FakeServer() as server:
        proposals, summary = ask(server, request(count=4), prices=(1.0, 2.0))
        assert [body["n"] for body in server.requests] == [4]
    assert len({ast_hash(proposal.source.text) for proposal in proposals}) == len(proposals)
    assert summary["asked"] == summary["answered"] == 4
    assert summary["proposed"] + summary["duplicates"] == 4
    assert summary["requests"] == 1


def test_64_requests_are_in_flight_at_once(ask):
    with FakeServer(together=64) as server:
        proposals, _ = ask(server, *(request(seed=seed) for seed in range(64)))
        assert server.most_in_flight == 64
    assert all(proposal.policy == "openai" for proposal in proposals)


def test_concurrency_limits_what_is_in_flight(ask):
    with FakeServer() as server:
        ask(server, *(request(seed=seed) for seed in range(12)), concurrency=3)
        assert server.most_in_flight <= 3
        assert len(server.requests) == 12


def test_submit_returns_while_the_server_thinks():
    with FakeServer(together=2) as server:
        policy = policy_for(server)
        first = policy.submit([request(seed=1)])
        assert not first.done()  # the server waits for the second question
        second = policy.submit([request(seed=2)])
        assert first.result()[0]
        assert second.result()[0]
        policy.close()


def test_structured_answers_are_held_to_the_schema_of_the_rewrites_that_apply(ask):
    with FakeServer() as server:
        ask(server, request())
        schema = server.requests[0]["response_format"]["json_schema"]["schema"]
    assert schema["required"] == ["steps"]
    steps = schema["properties"]["steps"]["items"]["enum"]
    assert steps
    assert "input_precision" not in {step["name"] for step in steps}  # softmax has no dot
    context = RewriteContext.of_task(TASK)
    for step in steps:
        assert apply_steps(SEED, [RewriteStep.model_validate(step)], context) != SEED


def test_answers_of_several_steps_are_held_to_the_arguments_of_rewrites_that_apply():
    schema = Workshop("structured", max_steps=3).schema(request())
    assert schema["properties"]["steps"]["maxItems"] == 3
    names = {option["properties"]["name"]["const"] for option in schema["properties"]["steps"]["items"]["oneOf"]}
    assert names
    assert "input_precision" not in names


@pytest.mark.parametrize(("field", "where"), [("structured_outputs", "json"), ("guided_json", "properties")])
def test_the_schema_can_travel_in_vllms_own_fields(ask, field, where):
    answer = '{"steps": [{"name": "exp_to_exp2", "args": {}}]}'
    with FakeServer([fake_server.says(answer)]) as server:
        ask(server, request(), schema_field=field)
        assert where in server.requests[0][field]
        assert "response_format" not in server.requests[0]


def test_other_servers_are_sent_nothing_they_do_not_know(ask):
    with FakeServer() as server:
        (proposal,), _ = ask(server, request(), server="openai", logprobs=False)
        (body,) = server.requests
    assert not {"return_token_ids", "logprobs", "max_tokens"} & set(body)
    assert body["max_completion_tokens"] == 2048
    assert "answer_token_ids" not in proposal.sampling


def test_rewrites_that_the_config_leaves_out_are_neither_offered_nor_taken(ask):
    rewrite = rewrite_named("exp_to_exp2")
    args = rewrite.candidates(SEED, RewriteContext.of_task(TASK))[0]
    step = RewriteStep(name=rewrite.name, args=args.model_dump(mode="json"))
    with FakeServer([fake_server.says(structured_answer([step]))] * 2) as server:
        proposals, summary = ask(server, request(), rewrites=("cache_hints",))
        assert "exp_to_exp2" not in str(server.requests[0])
    assert {proposal.policy for proposal in proposals} <= {"rule"}
    assert summary["unusable"] == {"unknown_rewrite": 1}


def test_a_seed_that_is_not_sent_is_not_recorded_either(ask):
    with FakeServer() as server:
        (proposal,), _ = ask(server, request(seed=3), send_seed=False)
        assert "seed" not in server.requests[0]
    assert "seed" not in proposal.sampling


def test_an_unusable_answer_is_sent_back_once_with_the_reason(ask):
    with FakeServer([fake_server.says("I would rather not.")]) as server:
        (proposal,), summary = ask(server, request())
        first, second = server.requests
    assert "I would rather not." not in str(first["messages"])
    assert "I would rather not." in str(second["messages"])
    assert proposal.policy == "openai"
    assert proposal.sampling["repairs"] == 1
    assert summary["repaired"] == 1


def test_what_the_static_stage_refuses_is_sent_back_with_its_words(ask):
    cheat = SEED.replace("import torch\n", "import torch\nimport os\n", 1)
    better = SEED.replace("def forward", "def other(self):\n        return 1\n\n    def forward", 1)
    script = [fake_server.says(f"```python\n{text}\n```") for text in (cheat, better)]
    with FakeServer(script) as server:
        (proposal,), summary = ask(server, request(), form="full")
    assert "import os" not in proposal.source.text
    assert "def other" in proposal.source.text
    assert summary["repaired"] == 1


def test_a_child_that_stays_refused_is_proposed_so_that_its_verdict_is_recorded(ask):
    cheat = f"```python\n{SEED.replace('import torch', 'import os, torch', 1)}\n```"
    with FakeServer([fake_server.says(cheat)] * 2) as server:
        (proposal,), _ = ask(server, request(), form="full")
    assert "import os" in proposal.source.text


def test_known_programs_are_dropped_and_counted_before_anybody_judges_them(ask):
    with FakeServer() as server:
        (proposal,), _ = ask(server, request(seed=5))
        taken = frozenset({ast_hash(proposal.source.text)})
        again, summary = ask(server, request(seed=5, taken=taken), on_failure="stop")
    assert again == []
    assert summary["duplicates"] == 1


def test_an_analysis_is_asked_for_once_and_shared_by_the_parents_children(ask):
    def answer(body, index):
        schema = body.get("response_format")
        return fake_server.structured_answer(body, index) if schema else "It waits for memory."

    with FakeServer(answer=answer) as server:
        proposals, _ = ask(server, *(request(seed=seed) for seed in range(4)), phases=("analyse", "generate"))
        analyses = [body for body in server.requests if "response_format" not in body]
    assert len(analyses) == 1
    assert len({proposal.messages for proposal in proposals}) == 1


def test_an_adapter_is_loaded_first_asked_by_name_and_unloaded_at_the_end(ask):
    with FakeServer(adapters=True) as server:
        server.adapters["mine"] = "/left/from/before"
        (proposal,), _ = ask(server, request(), adapter="mine", adapter_path="/adapters/new")
        calls = [path.rpartition("/")[2] for path in server.calls if "lora" in path]
        assert server.requests[0]["model"] == "mine"
        assert server.adapters == {}
    assert calls == ["load_lora_adapter", "unload_lora_adapter", "load_lora_adapter", "unload_lora_adapter"]
    assert proposal.policy_version == "mine"


def test_another_adapter_is_asked_from_the_next_question_on_and_old_ones_are_unloaded():
    with FakeServer(adapters=True) as server:
        policy = policy_for(server)
        versions = []
        for name in (None, "g1", "g2", "g3"):
            if name is not None:
                policy.use_adapter(name, f"/adapters/{name}")
            ((proposal,),) = policy.propose([request()])
            versions.append(proposal.policy_version)
            assert name is None or server.adapters[name] == f"/adapters/{name}"
        assert sorted(server.adapters) == ["g2", "g3"]
        policy.close()
        assert server.adapters == {}
    assert versions == ["tiny", "g1", "g2", "g3"]


def test_retry_after_is_kept_to_and_nobody_notices(ask):
    script = [
        fake_server.error(429, "slow down", retry_after="0.01"),
        fake_server.error(500, "oops", retry_after="0.01"),
    ]
    with FakeServer(script) as server:
        (proposal,), summary = ask(server, request(), retries=2)
        assert len(server.requests) == 3
    assert proposal.policy == "openai"
    assert summary["failures"] == {}


def test_a_prompt_that_is_too_long_for_the_server_is_cut_further_and_asked_again(ask):
    words = "This model's maximum context length is 100 tokens. However, you requested 200 tokens."
    with FakeServer([fake_server.error(400, words)]) as server:
        (proposal,), summary = ask(server, request())
        assert len(server.requests) == 2
    assert proposal.policy == "openai"
    assert summary["failures"] == {}


def test_requests_can_differ_in_count_and_some_have_nothing_to_ask(ask):
    broken = ParentView(candidate_id="c000001", source=KernelSource(text="def broken(:\n"))
    with FakeServer() as server:
        policy = policy_for(server)
        given = policy.propose([request(count=2), request(parents=(broken,)), request(seed=1)])
        policy.close()
        assert sorted(body["n"] for body in server.requests) == [1, 2]  # they arrive in any order
    assert [bool(children) for children in given] == [True, False, True]


def test_one_bad_sample_does_not_cost_the_others(ask):
    def answer(body, index):
        return "" if index == 0 else fake_server.structured_answer(body, index)

    with FakeServer(answer=answer) as server:
        proposals, summary = ask(server, request(count=3), repair=False)
    assert {proposal.policy for proposal in proposals} == {"openai"}
    assert sum(summary["unusable"].values()) == 1
