from __future__ import annotations

import threading

import pytest

from evaluator.errors import UsageError
from evaluator.task import load_task
from evaluator.types import EvalStatus
from policy import scoring
from policy.reward import RewardSettings
from policy.scoring import GroundTruth, Scorer, compute_score
from tests.policy.turns import evaluation

TASK = load_task("softmax")
TRUTH = GroundTruth(task=TASK, parent_source=TASK.seed_source, form="full")
PARTS = ["score", "status", "correct", "hack", "speedup"]


def whole(note: str) -> str:
    """An answer whose program differs from the seed by a constant."""
    return f"```python\n{TASK.seed_source}\nNOTE = {note!r}\n```"


class FakeEvaluator:
    """Says what it is told of every source, and keeps the sources."""

    def __init__(self, task, status=EvalStatus.PASSED, speedup=2.0):
        self.task, self.status, self.speedup = task, status, speedup
        self.sources, self.closed, self.busy = [], 0, threading.Lock()

    def evaluate(self, jobs):
        assert self.busy.acquire(blocking=False), "an evaluator has one caller at a time"
        for job in jobs:
            self.sources.append(job.source.text)
            yield job, evaluation(job.source.text, self.status, self.speedup)
        self.busy.release()

    def close(self):
        self.closed += 1


def scorer(**options):
    made = []

    def make(task):
        made.append(FakeEvaluator(task, **options))
        return made[-1]

    return Scorer(make), made


def test_a_correct_answer_earns_the_reward_of_its_speed():
    judge, _ = scorer(speedup=2.0)
    found = judge.score(whole("a"), TRUTH)
    assert found == {
        "score": pytest.approx(0.8),
        "status": "passed",
        "correct": 1.0,
        "hack": 0.0,
        "speedup": pytest.approx(2),
    }


@pytest.mark.parametrize(
    ("status", "score"), [("wrong_value", -0.1), ("timeout", -0.2), ("fallback", -0.5), ("worker_lost", 0.0)]
)
def test_every_verdict_has_its_reward_and_the_same_keys(status, score):
    judge, _ = scorer(status=EvalStatus(status))
    found = judge.score(whole("a"), TRUTH)
    assert (found["score"], found["status"], list(found)) == (score, status, PARTS)
    assert found["hack"] == (status == "fallback")


@pytest.mark.parametrize(("answer", "score"), [("no idea", -0.4), (f"```python\n{TASK.seed_source}```", -0.3)])
def test_an_answer_without_a_child_is_judged_without_an_evaluator(answer, score):
    judge, made = scorer()
    found = judge.score(answer, TRUTH)
    assert (found["score"], list(found), made) == (score, PARTS, [])


def test_a_source_is_judged_once_and_a_broken_harness_is_asked_again():
    judge, made = scorer()
    judge.score(whole("a"), TRUTH)
    judge.score(whole("a"), TRUTH)
    judge.score(whole("b"), TRUTH)
    assert len(made[0].sources) == 2
    broken, made = scorer(status=EvalStatus.WORKER_LOST)
    broken.score(whole("a"), TRUTH)
    broken.score(whole("a"), TRUTH)
    assert len(made[0].sources) == 2


def test_threads_take_turns():
    judge, made = scorer()
    threads = [threading.Thread(target=judge.score, args=(whole(str(number)), TRUTH)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made[0].sources)) == 8


def test_only_a_few_tasks_stay_open(monkeypatch):
    monkeypatch.setattr(scoring, "OPEN_TASKS", 1)
    judge, made = scorer()
    other = load_task("swiglu")
    judge.score(whole("a"), TRUTH)
    judge.score(
        f"```python\n{other.seed_source}\nNOTE = 1\n```", GroundTruth(task=other, parent_source=other.seed_source)
    )
    assert [one.closed for one in made] == [1, 0]
    judge.close()
    judge.close()
    assert [one.closed for one in made] == [1, 1]


def test_the_reward_formula_is_the_one_asked_for():
    judge = Scorer(FakeEvaluator, RewardSettings(type="profile", scale=0.5))
    assert judge.score(whole("a"), TRUTH)["score"] == pytest.approx(1.5)


def test_a_ground_truth_of_something_else_is_refused():
    with pytest.raises(UsageError, match="not what an export writes"):
        compute_score("kernevo/softmax", "answer", "42", evaluator={"type": "cpu"})


def test_the_exported_function_judges_with_the_real_evaluator():
    truth = TRUTH.model_dump_json()
    cpu = {"type": "cpu", "target": "h200", "workers": 1, "cache": False}
    good = compute_score("kernevo/softmax", whole("a"), truth, evaluator=cpu)
    assert (good["status"], good["correct"]) == ("passed", 1.0)
    wrong = TASK.seed_source.replace("tl.exp(", "2 * tl.exp(").replace("tl.sum(", "3 * tl.sum(")
    assert wrong != TASK.seed_source
    bad = compute_score("kernevo/softmax", f"```python\n{wrong}```", truth, evaluator=cpu)
    assert (bad["status"], bad["score"]) == ("wrong_value", -0.1)
