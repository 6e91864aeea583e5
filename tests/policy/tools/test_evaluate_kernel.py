import json

import pytest

from evaluator.types import EvalStatus, Evaluation, Timing
from policy.tools import ToolBox, ToolSources


class Judge:
    """Gives every source the same verdict and counts."""

    def __init__(self, status=EvalStatus.PASSED, kind="measured", problem=None, **more):
        self.judged = []
        self._status, self._kind, self._problem, self._more = status, kind, problem, more

    def __call__(self, source):
        self.judged.append(source.text)
        if self._problem is not None:
            raise self._problem
        timings = {"large": Timing(kind=self._kind, median_ms=0.5, baseline_ms=1.0)} if self._status.passed else {}
        return Evaluation(
            source_sha=source.sha,
            task="softmax",
            evaluator="gpu",
            status=self._status,
            timings=timings,
            target="h200",
            **self._more,
        )


def box_of(judge, evaluations=2):
    return ToolBox.of(["evaluate_kernel"], ToolSources(evaluate=judge, evaluations=evaluations))


def ask(box, source="pass"):
    return box.call("evaluate_kernel", json.dumps({"source": source}))


@pytest.mark.parametrize("kind", ["measured", "modelled"])
def test_latencies_say_whether_they_are_measured_or_modelled(kind):
    answer = ask(box_of(Judge(kind=kind)))
    assert f"passed, 2.000x the baseline ({kind} latency, h200)" in answer
    assert f"Latency of large: 0.5 ms ({kind})" in answer


def test_a_failure_comes_with_its_reason_and_explanation_as_data():
    answer = ask(box_of(Judge(EvalStatus.COMPILE_ERROR, reason="no such name", explain="line 3: foo")))
    assert "Verdict: compile_error." in answer
    assert "```text\nno such name\nline 3: foo\n```" in answer


def test_only_so_many_sources_reach_the_evaluator():
    judge = Judge()
    box = box_of(judge, evaluations=2)
    answers = [ask(box, f"source = {number}") for number in range(3)]
    assert judge.judged == ["source = 0", "source = 1"]
    assert "Evaluations left: 1 of 2." in answers[0]
    assert answers[2].startswith("Error: all 2 evaluations of this candidate are used")


def test_the_same_source_again_costs_nothing():
    judge = Judge()
    box = box_of(judge, evaluations=1)
    assert ask(box) == ask(box)
    assert judge.judged == ["pass"]


def test_an_evaluator_that_breaks_costs_budget_and_says_nothing_about_the_kernel():
    judge = Judge(problem=OSError("disk full"))
    box = box_of(judge, evaluations=1)
    assert "says nothing about the kernel" in ask(box)
    assert "evaluations of this candidate are used" in ask(box)
    assert len(judge.judged) == 1


def test_a_broken_harness_is_not_blamed_on_the_kernel():
    assert "says nothing about the kernel" in ask(box_of(Judge(EvalStatus.HARNESS_ERROR)))
