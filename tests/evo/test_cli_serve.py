"""What `kernevo serve` refuses before it listens, and what it makes of its options."""

from __future__ import annotations

import socket

import pytest

from evo.serve import server
from evo.serve.settings import judging_settings
from policy.reward import RewardSettings
from tests.evo.cli_call import call

TOKEN = "0123456789abcdef"


@pytest.fixture
def asked(monkeypatch):
    """The settings of a server that is never started."""
    found = []
    monkeypatch.setattr(server, "serve", lambda settings: found.append(settings) or 0)
    return found


def test_options_and_overrides_reach_the_server(asked, monkeypatch):
    monkeypatch.setenv("MINE", f" {TOKEN}\n")
    outcome = call(
        *("serve", "--evaluator", "gpu", "--set", "evaluator.workers=2", "--set", "reward.type=profile"),
        *("--host", "0.0.0.0", "--token-env", "MINE", "--queue", "9", "--max-source-kb", "7", "--grace", "3"),
    )
    assert outcome.code == 0, outcome.err
    (settings,) = asked
    assert (settings.evaluator.type, settings.evaluator.workers) == ("gpu", 2)
    assert settings.evaluator.duplicates == "judge"
    assert settings.rewards == RewardSettings(type="profile")
    assert (settings.host, settings.token, settings.queue) == ("0.0.0.0", TOKEN, 9)
    assert (settings.max_source_bytes, settings.grace_seconds) == (7000, 3.0)


def test_without_options_only_this_machine_is_served(asked, monkeypatch):
    monkeypatch.delenv("KERNEVO_SERVE_TOKEN", raising=False)
    assert call("serve").code == 0
    assert (asked[0].host, asked[0].token, asked[0].evaluator.type) == ("127.0.0.1", None, "cpu")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0"], "a server that other machines can reach needs a token"),
        (["--host", "::"], "needs a token"),
        (["--host", "example.org"], "needs a token"),
        (["--evaluator", "tpu"], "evaluator"),
        (["--set", "budget.seconds=1"], "not of evaluator or reward"),
        (["--set", "evaluator.wokers=1"], "the nearest valid key is `evaluator.workers`"),
        (["--set", "evaluator.workers=none"], "evaluator.workers"),
        (["--set", "evaluator.target=h2000"], "the nearest is `h200`"),
        (["--set", "evaluator.cache_dir=x"], "not kept together"),
        (["--evaluator", "gpu", "--set", "evaluator.thorough=true"], "takes minutes for each kernel"),
        (["--tasks", "1", "--concurrency", "2"], "fewer than --concurrency 2"),
        (["--token-env", "se cret"], "no name of an environment variable"),
    ],
)
def test_wrong_options_leave_with_2(asked, monkeypatch, arguments, said):
    monkeypatch.delenv("KERNEVO_SERVE_TOKEN", raising=False)
    outcome = call("serve", *arguments)
    assert outcome.code == 2
    assert said in outcome.err
    assert not asked


@pytest.mark.parametrize("token", ["short", "with a space in it", "ümläute-are-no-token", "0123456789\x07abcdef"])
def test_a_token_that_is_none_is_refused_and_not_repeated(asked, monkeypatch, token):
    monkeypatch.setenv("KERNEVO_SERVE_TOKEN", token)
    outcome = call("serve")
    assert outcome.code == 2
    assert token not in outcome.err + outcome.out
    assert "16 or more visible ASCII characters" in outcome.err


def test_a_port_in_use_is_named(monkeypatch):
    monkeypatch.delenv("KERNEVO_SERVE_TOKEN", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = call("serve", "--port", port)
    assert outcome.code == 4
    assert f"127.0.0.1:{port}: cannot listen there" in outcome.err


def test_without_fastapi_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "fastapi" else object())
    outcome = call("serve")
    assert outcome.code == 4
    assert "pip install 'kernevo[serve]'" in outcome.err


def test_the_defaults_are_the_configs():
    judge, rewards = judging_settings("cpu", [])
    assert (judge.target, judge.cache) == ("h200", True)
    assert rewards == RewardSettings()


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("", False)],
)
def test_which_addresses_only_this_machine_reaches(host, local):
    assert server.is_loopback(host) is local
