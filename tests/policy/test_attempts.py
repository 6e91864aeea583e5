"""The store of attempts: outlives its process, belongs to one campaign at a time, and fills prompts."""

from __future__ import annotations

import json

import pytest

from evaluator.errors import KernevoError, UsageError
from evaluator.types import EvalStatus
from policy.attempts import AttemptStore, TornAttemptWarning
from policy.ensemble import EnsemblePolicy
from policy.model_children import Workshop
from policy.openai_client import OpenAISettings
from policy.openai_policy import OpenAIPolicy
from policy.rule_policy import RulePolicy
from tests.policy.fake_server import MODEL, FakeServer
from tests.policy.prompt_cases import judged, passed, request, variant, view

pytest.importorskip("openai")

ASKED = request()
TASK = ASKED.task
PARENT = ASKED.parents[0].source.text


def attempt(number, speedup=None):
    text = variant(PARENT, number)
    evaluation = judged(text, EvalStatus.WRONG_VALUE) if speedup is None else passed(text, speedup)
    return view(f"c{number:06d}", text, evaluation)


GIVEN = (attempt(11, 1.1), attempt(12), attempt(13, 1.9), attempt(14, 1.2), attempt(15, 1.6), attempt(16, 1.4))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "attempts.jsonl"


def stored(path, *attempts, task=TASK):
    """What a store holds for a task after these were added."""
    store = AttemptStore(path)
    store.add(task, attempts)
    store.close()
    return store.attempts(TASK)


def test_a_store_outlives_its_process(path):
    assert stored(path, *GIVEN) == GIVEN
    assert stored(path, attempt(17, 1.0)) == (*GIVEN, attempt(17, 1.0))


def test_what_the_same_judge_said_of_a_source_is_kept_once(path):
    stored(path, *GIVEN)
    size = path.stat().st_size
    assert stored(path, *GIVEN) == GIVEN
    assert path.stat().st_size == size
    elsewhere = GIVEN[0].evaluation.model_copy(update={"target": "a100"})
    assert len(stored(path, GIVEN[0].model_copy(update={"evaluation": elsewhere}))) == len(GIVEN) + 1


def test_tasks_do_not_share_attempts(path):
    assert stored(path, *GIVEN, task=request("matmul").task) == ()


def test_a_file_has_one_owner_at_a_time(path):
    store = AttemptStore(path)
    with pytest.raises(UsageError, match="another campaign is using it"):
        AttemptStore(path)
    store.close()
    store.close()
    AttemptStore(path).close()


def test_a_torn_last_line_is_cut_off_and_the_store_goes_on(path):
    stored(path, *GIVEN[:2])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.warns(TornAttemptWarning, match=r"attempts.jsonl:2"):
        assert stored(path, GIVEN[2]) == (GIVEN[0], GIVEN[2])
    assert stored(path) == (GIVEN[0], GIVEN[2])


@pytest.mark.parametrize("line", ["no json", "[]", "{}", json.dumps({"task": "t", "attempt": {"source": 1}})])
def test_a_damaged_line_is_named(path, line):
    stored(path, GIVEN[0])
    path.write_text(path.read_text() + line + "\n")
    for _ in range(2):  # the file was let go of
        with pytest.raises(KernevoError, match=r"attempts.jsonl:2: damaged line"):
            AttemptStore(path)


def test_a_store_that_is_no_file_is_a_clear_error(tmp_path):
    with pytest.raises(KernevoError, match="cannot be opened"):
        AttemptStore(tmp_path)


def policy_with(server, path, width=4):
    workshop = Workshop(attempts=AttemptStore(path), width=width)
    where = OpenAISettings(model=MODEL, base_url=server.url, retries=0, context_tokens=32768)
    return OpenAIPolicy(where, None, workshop)


def shown_attempts(body):
    """Variants of the attempts in a prompt, in the order shown."""
    prompt = body["messages"][1]["content"].partition("# Earlier attempts")[2]
    return [int(part.split("\n")[0]) for part in prompt.split("VARIANT = ")[1:]]


def asked_with(seed):
    return ASKED.model_copy(update={"attempts": (), "inspirations": (), "seed": seed, "count": 1})


def test_prompts_show_the_best_of_everything_that_a_policy_has_heard_of(path):
    with FakeServer() as server:
        for heard in (GIVEN, ()):  # the second one reads them from the file
            policy = policy_with(server, path)
            policy.hear(TASK, heard)
            policy.propose([asked_with(seed) for seed in range(12)])
            policy.close()
            shown = [shown_attempts(body) for body in server.requests]
            assert [13, 15, 16, 14] in shown
            assert all(len(found) <= 4 for found in shown)
            server.requests.clear()


def test_the_width_says_how_many_attempts_a_prompt_shows(path):
    with FakeServer() as server:
        policy = policy_with(server, path, width=2)
        policy.hear(TASK, GIVEN)
        policy.propose([asked_with(seed) for seed in range(12)])
        policy.close()
        assert [13, 15] in [shown_attempts(body) for body in server.requests]


def test_an_ensemble_tells_its_members_what_it_hears(path):
    with FakeServer() as server:
        ensemble = EnsemblePolicy([(RulePolicy(), 1), (policy_with(server, path), 1)])
        ensemble.hear(TASK, GIVEN)
        ensemble.close()
    assert stored(path) == GIVEN
