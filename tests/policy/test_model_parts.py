"""The small parts of asking a model: rate limits, the ledger, the key, the pause, the ensemble."""

from __future__ import annotations

import asyncio

import pytest

from evaluator.errors import UsageError
from evaluator.task import load_task
from evaluator.types import KernelSource
from policy.chat import AskError, Question
from policy.ensemble import EnsemblePolicy
from policy.ledger import Ledger, Prices
from policy.openai_wire import LOWEST_LOGPROB, answers
from policy.outcomes import Pause
from policy.rate_limit import RateLimit
from policy.rule_policy import RulePolicy
from policy.secret import ApiKey
from policy.testing import PolicyTestCase
from policy.types import ParentView, ProposalRequest
from tests.evo.fakes import SEED, FakePolicy


class Clock:
    """Time that passes by sleeping alone."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def waits(per_minute, amounts) -> list[float]:
    """When each amount may pass."""
    clock = Clock()
    limit = RateLimit(per_minute, clock=clock, sleep=clock.sleep)

    async def take() -> list[float]:
        times = []
        for amount in amounts:
            await limit.take(amount)
            times.append(clock.now)
        return times

    return asyncio.run(take())


def test_a_minutes_worth_passes_at_once_and_the_rest_at_the_rate():
    assert waits(60, [1] * 62) == pytest.approx([0.0] * 60 + [1.0, 2.0])


def test_more_than_a_minutes_worth_passes_like_a_minutes_worth():
    assert waits(100, [250, 50]) == pytest.approx([0.0, 30.0])


def test_without_a_limit_nothing_waits():
    assert waits(None, [1e9] * 3) == [0.0] * 3


def test_questions_in_flight_hold_what_they_may_cost():
    ledger = Ledger(max_tokens=100)
    with ledger.reserved(20, 40), pytest.raises(AskError, match="max_tokens_total"), ledger.reserved(20, 40):
        pass
    with ledger.reserved(20, 40):
        ledger.spend(20, 10)
    with ledger.reserved(20, 50):
        pass
    assert ledger.summary() == {"requests": 1, "prompt_tokens": 20, "completion_tokens": 10, "dollars": 0.0}


def test_dollars_follow_from_prices_per_million_and_stop_asking_too():
    ledger = Ledger(Prices(2.0, 8.0), max_dollars=0.01)
    ledger.spend(1000, 500)
    assert ledger.dollars == pytest.approx(0.006)
    with pytest.raises(AskError, match="max_dollars"), ledger.reserved(0, 1000):
        pass


def test_the_key_is_cut_out_of_texts_and_does_not_show_itself(monkeypatch):
    monkeypatch.setenv("A_KEY", " abcdef123 \n")
    key = ApiKey.from_environment("A_KEY")
    assert key.reveal() == "abcdef123"
    assert key.redact("Bearer abcdef123!") == "Bearer [key]!"
    assert "abcdef" not in repr(key)


def test_without_a_key_servers_get_the_word_empty_which_no_text_loses(monkeypatch):
    monkeypatch.delenv("A_KEY", raising=False)
    key = ApiKey.from_environment("A_KEY")
    assert (key.reveal(), key.is_set, key.redact("EMPTY")) == ("EMPTY", False, "EMPTY")


@pytest.mark.parametrize("text", ["sk-one\nsk-two", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(monkeypatch, text):
    monkeypatch.setenv("A_KEY", text)
    with pytest.raises(UsageError, match=r"\$A_KEY holds characters") as caught:
        ApiKey.from_environment("A_KEY")
    assert text[:3] not in str(caught.value)


def test_a_pause_follows_failures_that_last_and_ends():
    clock = Clock()
    pause = Pause(30.0, clock)
    pause.after(AskError("server_error", "oops"))
    assert pause.reason is None
    pause.after(AskError("timeout", "late"))
    clock.now = 29.9
    assert pause.reason == "timeout"
    clock.now = 30.0
    assert pause.reason is None


def test_log_probabilities_that_json_cannot_say_are_mended():
    choice = '{"message": {"content": "\\ud800"}, "logprobs": {"content": [{"logprob": -1e999}, {"logprob": -1}]}}'
    (answer,) = answers(f'{{"choices": [{choice}]}}', Question((), 10, 10))
    assert answer.logprobs == (LOWEST_LOGPROB, -1.0)
    assert answer.text.encode()
    assert (answer.prompt_tokens, answer.completion_tokens, answer.finish_reason) == (10, 2, "stop")


def request(seed: int) -> ProposalRequest:
    parent = ParentView(candidate_id="c0", source=KernelSource(text=SEED))
    return ProposalRequest(request_id="r", task=load_task("softmax"), parents=(parent,), operator="rewrite", seed=seed)


class TestEnsemble(PolicyTestCase):
    def make_policy(self):
        return EnsemblePolicy([(RulePolicy(), 1), (RulePolicy(max_steps=3), 2)])

    def policy_names(self):
        return {"rule"}


def test_requests_are_divided_by_weight_and_by_their_seed_alone():
    made = EnsemblePolicy([(RulePolicy(), 1), (FakePolicy(), 3)])
    requests = [request(seed) for seed in range(400)]
    owners = [made.member_for(one) for one in requests]
    assert 0.68 < sum(owners) / len(owners) < 0.82
    assert owners[::-1] == [made.member_for(one) for one in reversed(requests)]


def test_every_request_is_answered_in_its_place():
    requests = [request(seed) for seed in range(8)]

    class Single(FakePolicy):
        """One child for each request."""

        def propose(self, asked):
            return [[self._child(one)] for one in asked]

    made = EnsemblePolicy([(Single(), 1), (Single(), 1)])
    assert made.propose(requests) == made.submit(requests).result() == Single().propose(requests)
    made.close()


def test_an_ensemble_is_deterministic_only_when_all_members_are():
    class Fickle(FakePolicy):
        deterministic = False

    assert EnsemblePolicy([(FakePolicy(), 1), (RulePolicy(), 1)]).deterministic
    assert not EnsemblePolicy([(FakePolicy(), 1), (Fickle(), 1)]).deterministic


@pytest.mark.parametrize("members", [[], [(FakePolicy(), 0.0)]])
def test_an_ensemble_needs_members_with_weight(members):
    with pytest.raises(UsageError):
        EnsemblePolicy(members)
