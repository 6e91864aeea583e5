"""verl's reward function against a server: what answers earn, what is asked again, what is said."""

from __future__ import annotations

import json
import math
import urllib.request

import pytest

from evaluator.errors import EnvironmentUnusableError, TaskError, UsageError
from evaluator.testing import SEED, TASK
from policy import served_score
from policy.served_score import compute_score
from tests.evo.serving import FakeJudges, listening, make_app, make_queue

TOKEN = "0123456789abcdef"
TRUTH = json.dumps({"task": TASK.model_dump(mode="json"), "parent_source": SEED, "form": "full"})
KEYS = {"score", "status", "correct", "hack", "speedup"}


@pytest.fixture
def judges():
    return FakeJudges()


@pytest.fixture
def url(judges, monkeypatch):
    monkeypatch.setenv("KERNEVO_SERVE_TOKEN", TOKEN)
    queue = make_queue(judges)
    with listening(make_app(queue, TOKEN, max_source_bytes=20_000)) as found:
        yield found
    judges.gate.set()
    queue.close()


def answer(first_line, change="BLOCK = 128"):
    return f"```python\n{first_line}\n{SEED.replace('BLOCK = 64', change)}```"


def score(text, url, **more):
    found = compute_score("kernevo/row_sums", text, TRUTH, {"index": 0}, url=url, **more)
    assert set(found) == KEYS
    return found


def test_answers_earn_what_the_server_says(url):
    good = score(answer("# good"), url)
    assert (good["status"], good["correct"], good["hack"], good["speedup"]) == ("passed", 1.0, 0.0, 2.0)
    assert good["score"] == pytest.approx(0.3 + 0.5 * math.log2(1.9) + 0.375)
    wrong = score(answer("# wrong"), url)
    assert (wrong["score"], wrong["status"], wrong["correct"]) == (-0.1, "wrong_value", 0.0)
    hack = score(answer("# hack"), url)
    assert (hack["score"], hack["hack"]) == (-0.5, 1.0)


def test_the_server_is_told_the_whole_task(url, judges):
    score(answer("# good"), url)
    ((told, _),) = judges.started
    assert (told.reference_code, told.seed_code) == (TASK.reference_source, TASK.seed_source)
    for name in served_score.TASK_FIELDS:
        assert getattr(told, name) == getattr(TASK, name), name


def test_answers_without_a_kernel_earn_by_the_servers_settings_without_being_judged(url, judges):
    assert score("I would rather not.", url) == {
        "score": -0.4, "status": "unparsable", "correct": 0.0, "hack": 0.0, "speedup": 0.0,
    }  # fmt: skip
    assert score(f"```python\n{SEED}```", url)["score"] == -0.3
    assert score(answer("#" * 21_000), url)["status"] == "unparsable"
    assert judges.batches == []


def test_where_nothing_is_known_the_score_is_zero(url, judges):
    def at_fault(source):
        raise TaskError("no", "mend it")

    judges.behave = at_fault
    assert score(answer("# good"), url) == {
        "score": 0.0, "status": "failed", "correct": 0.0, "hack": 0.0, "speedup": 0.0,
    }  # fmt: skip


def test_a_full_queue_is_asked_again_after_the_time_it_says(monkeypatch, judges):
    pauses = []
    queue = make_queue(judges, bound=1, batch=1)
    judges.gate.clear()

    def pause(seconds):
        pauses.append(seconds)
        judges.gate.set()
        for job in list(queue._jobs.values()):
            job.done.result()

    monkeypatch.setattr(served_score.time, "sleep", pause)
    monkeypatch.delenv("KERNEVO_SERVE_TOKEN", raising=False)
    with listening(make_app(queue)) as url:
        for number in range(2):
            body = json.dumps({"reference_code": f"class Model: {number}", "kernel_code": "# good"}).encode()
            headers = {"Content-Type": "application/json"}
            urllib.request.urlopen(urllib.request.Request(f"{url}/evaluate?wait=false", body, headers)).close()
            judges.waiting.wait()
        assert score("```python\n# good\n" + SMALL + "```", url)["status"] == "passed"
    assert pauses == [5.0]  # what a job takes before any was judged, for the one that waits
    queue.close()


SMALL = SEED.replace("BLOCK = 64", "BLOCK = 128")


def test_a_server_that_stays_away_stops_the_training_and_is_named(monkeypatch):
    monkeypatch.setattr(served_score.time, "sleep", lambda seconds: None)
    times = iter(range(0, 1000, 100))
    monkeypatch.setattr(served_score.time, "monotonic", lambda: next(times))
    with pytest.raises(EnvironmentUnusableError, match=r"127\.0\.0\.1:9/evaluate: no answer in 250 s") as failed:
        score(answer("# good"), "http://127.0.0.1:9", timeout_s=250.0)
    assert "start `kernevo serve`" in failed.value.hint


def test_a_wrong_token_is_said_once_and_not_shown(url, monkeypatch):
    monkeypatch.setenv("OTHER", "not-the-right-token")
    with pytest.raises(UsageError, match="the token is missing or wrong") as failed:
        score(answer("# good"), url, token_env="OTHER")
    assert "not-the-right-token" not in str(failed.value)


@pytest.mark.parametrize("truth", ["", "{}", "42", '{"task": "softmax", "parent_source": "x"}'])
def test_a_ground_truth_that_no_export_wrote_is_named(url, truth):
    with pytest.raises(UsageError, match="ground_truth: not what an export writes"):
        compute_score("kernevo/x", "answer", truth, url=url)


def test_a_url_without_its_scheme_is_named():
    with pytest.raises(UsageError, match="begins with http"):
        compute_score("kernevo/x", "answer", TRUTH, url="localhost:8000")
