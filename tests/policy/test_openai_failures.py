"""Every way in which a model server fails: rules answer or one clean error stops, and nobody learns the key."""

from __future__ import annotations

import json
import sys
import traceback

import pytest

from evaluator.errors import EnvironmentUnusableError, KernevoError
from policy.chat import AskError
from policy.openai_client import OpenAISettings
from policy.openai_policy import OpenAIPolicy
from tests.policy import fake_server
from tests.policy.asking import SEED, policy_for, request
from tests.policy.fake_server import MODEL, FakeServer

pytest.importorskip("openai")

FAILURES = {
    "rate_limited": [fake_server.error(429, "slow down")],
    "server_error": [fake_server.error(500, "CUDA out of memory")],
    "refused": [fake_server.error(401, "bad key")],
    "bad_request": [fake_server.error(400, "unknown field")],
    "context_overflow": [fake_server.error(400, "maximum context length is 16")] * 6,
    "bad_response": [fake_server.body('{"choices": []}')],
    "bad_response: no json": [fake_server.body("<html>hello</html>")],
    "bad_response: torn json": [fake_server.body('{"choices": [{"message"')],
    "bad_response: no object": [fake_server.body("[]")],
    "unreachable": [fake_server.drops],
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_answered_by_rules_and_counted(ask, name, caplog):
    reason = name.partition(":")[0]
    with FakeServer(FAILURES[name]) as server:
        (proposal,), summary = ask(server, request())
    assert proposal.policy == "rule"
    assert summary["failures"] == summary["fallbacks"] == {reason: 1}
    (record,) = caplog.records
    assert server.url in record.getMessage()
    assert "the rule policy answers in its place" in record.getMessage()


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_stops_with_one_clean_error_where_the_config_says_so(ask, name):
    with FakeServer(FAILURES[name]) as server, pytest.raises(KernevoError) as caught:
        ask(server, *(request(seed=seed) for seed in range(3)), on_failure="stop")
    assert caught.value.reason == name.partition(":")[0]
    assert caught.value.hint
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize("on_failure", ["fallback", "stop"])
def test_a_server_that_hangs_times_out(ask, on_failure):
    with FakeServer([fake_server.hangs]) as server:
        settings = {"timeout_s": 0.3, "context_tokens": 8192, "on_failure": on_failure}
        if on_failure == "stop":
            with pytest.raises(AskError, match="no answer within") as caught:
                ask(server, request(), **settings)
            assert caught.value.reason == "timeout"
            return
        (proposal,), summary = ask(server, request(), **settings)
    assert proposal.policy == "rule"
    assert summary["failures"] == {"timeout": 1}


@pytest.mark.parametrize("on_failure", ["fallback", "stop"])
def test_a_server_that_is_not_there(ask, on_failure):
    with FakeServer() as server:
        pass
    if on_failure == "stop":
        with pytest.raises(AskError, match="cannot be reached") as caught:
            ask(server, request(), on_failure="stop")
        assert "start the server" in caught.value.hint
        return
    (proposal,), summary = ask(server, request())
    assert proposal.policy == "rule"
    assert summary["failures"] == {"unreachable": 1}


def test_a_wrong_model_is_told_with_the_models_there_are(ask):
    with FakeServer() as server, pytest.raises(AskError) as caught:
        ask(server, request(), model="huge", on_failure="stop")
    assert caught.value.reason == "wrong_model"
    assert caught.value.hint == "set policy.model to one of: tiny"


UNUSABLE = {
    "empty": fake_server.says(""),
    "truncated": fake_server.says('{"steps": [{"name": "exp_', "length"),
    "prose": fake_server.says("I cannot help with that."),
    "unknown rewrite": fake_server.says('{"steps": [{"name": "make_faster", "args": {}}]}'),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_request_without_a_usable_answer_goes_to_the_rules(ask, name):
    with FakeServer([UNUSABLE[name]] * 2) as server:
        (proposal,), summary = ask(server, request())
    assert proposal.policy == "rule"
    assert sum(summary["unusable"].values()) == 1
    assert summary["fallbacks"] == {"no_usable_answer": 1}


@pytest.mark.parametrize("name", UNUSABLE)
def test_unusable_answers_stop_only_when_nothing_else_comes(name):
    with FakeServer([UNUSABLE[name]] * 4) as server:
        policy = policy_for(server, on_failure="stop", unusable_limit=2)
        assert policy.propose([request(seed=1)]) == [[]]
        with pytest.raises(AskError, match="no usable answer to 2 requests in a row"):
            policy.propose([request(seed=2)])
        policy.close()


def test_a_dead_server_is_left_alone_for_a_while_and_then_asked_again():
    with FakeServer([fake_server.error(429, "slow down")]) as server:
        policy = policy_for(server, pause_s=30.0)
        now = [0.0]
        policy._pause._clock = lambda: now[0]
        kinds = []
        for now[0] in (0.0, 29.0, 31.0):
            kinds.append(policy.propose([request(seed=int(now[0]))])[0][0].policy)
        policy.close()
        assert len(server.requests) == 2
    assert kinds == ["rule", "rule", "openai"]
    assert policy.summary()["failures"] == {"rate_limited": 1}


@pytest.mark.parametrize("budget", [{"max_tokens_total": 20_000}, {"max_dollars": 0.02, "prices": (1.0, 1.0)}])
def test_a_budget_is_never_overdrawn_and_then_the_rules_go_on(ask, budget):
    with FakeServer() as server:
        proposals, summary = ask(server, *(request(seed=seed) for seed in range(40)), **budget)
        asked = len(server.requests)
    assert 0 < asked < 40
    assert {proposal.policy for proposal in proposals} == {"openai", "rule"}
    assert summary["prompt_tokens"] + summary["completion_tokens"] <= 20_000
    assert summary["fallbacks"]["budget"] == 40 - asked


OTHER = SEED.replace("def forward", "def other(self):\n        return 1\n\n    def forward", 1)
KEY = "sk-very-secret-0123456789"
LEAKS = {
    "error": fake_server.error(400, f"what is {KEY}?"),
    "wrong shape": fake_server.body(json.dumps({"choices": KEY})),
    "no json": fake_server.body(KEY),
    "unusable answer": fake_server.says(KEY),
    "answer": fake_server.says(f"```python\n# {KEY}\n{OTHER}```"),
}


@pytest.mark.parametrize("name", LEAKS)
def test_the_key_is_sent_and_shown_nowhere(ask, monkeypatch, caplog, name):
    monkeypatch.setenv("MY_KEY", f"{KEY}\n")
    caplog.set_level("DEBUG")
    with FakeServer([LEAKS[name]] * 2) as server:
        proposals, summary = ask(server, request(), api_key_env="MY_KEY", form="full")
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"
        assert KEY not in str(proposals) + str(summary) + json.dumps(server.requests)
    assert ("# [key]" in proposals[0].source.text) == (name == "answer")
    assert KEY not in caplog.text


@pytest.mark.parametrize("name", sorted(LEAKS.keys() - {"answer"}))
def test_the_error_that_stops_a_campaign_does_not_hold_the_key(ask, monkeypatch, name):
    monkeypatch.setenv("MY_KEY", KEY)
    with FakeServer([LEAKS[name]] * 2) as server, pytest.raises(KernevoError) as caught:
        ask(server, request(), api_key_env="MY_KEY", on_failure="stop", unusable_limit=1)
    assert KEY not in str(caught.value)
    assert KEY not in "".join(traceback.format_exception(caught.value))


def test_a_key_in_place_of_its_variables_name_is_not_repeated(ask):
    with FakeServer() as server, pytest.raises(KernevoError) as caught:
        ask(server, request(), api_key_env="sk-very-secret")
    assert "sk-very-secret" not in str(caught.value)


def test_closing_drops_what_is_in_flight():
    with FakeServer([fake_server.hangs]) as server:
        policy = policy_for(server)
        waiting = policy.submit([request()])
        policy.close()
        assert waiting.cancelled()


def test_a_missing_package_is_told_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(EnvironmentUnusableError) as caught:
        OpenAIPolicy(OpenAISettings(model=MODEL))
    assert caught.value.hint == "pip install 'kernevo[llm]'"
