"""The ablation's searches and what is made of their speedups."""

from __future__ import annotations

import argparse
import xml.etree.ElementTree as ElementTree
from itertools import islice

import pytest

from benchmarks import ablation, ablation_shown
from evaluator.source_hash import ast_hash
from evaluator.task import load_task
from evaluator.types import EvalStatus, EvaluationJob, KernelSource
from tests.evo import fakes


class Judge(fakes.FakeEvaluator):
    """The tests' judge, for sources that it knows nothing of; blames itself for the first look at `unlucky`."""

    unlucky = ""

    def _judge(self, source):
        if source.text == self.unlucky and self.judged.count(source.sha) == 1:
            return fakes.failed(source, EvalStatus.HARNESS_ERROR, "a cable was loose")
        return fakes.passed(KernelSource(text=fakes.SEED), 1.0 / (1 + len(source.text) % 7), 1.0)


def asked(*texts):
    return [EvaluationJob(job_id=f"j{at}", source=KernelSource(text=text)) for at, text in enumerate(texts)]


def test_a_program_is_judged_once_and_answers_keep_the_order_of_the_jobs():
    judge = Judge()
    once = ablation.Once(judge)
    first = {job.job_id: found for job, found in once.evaluate(asked("a", "bb"))}
    second = list(once.evaluate(asked("ccc", "a", "dddd", "bb")))
    assert [job.job_id for job, _ in second] == ["j0", "j1", "j2", "j3"]
    assert [second[1][1], second[3][1]] == [first["j0"], first["j1"]]
    assert [second[0][1].speedup, second[2][1].speedup] == [pytest.approx(4), pytest.approx(5)]
    assert len(judge.judged) == 4


def test_a_verdict_on_the_judge_itself_is_not_kept():
    judge = Judge()
    judge.unlucky = "a"
    once = ablation.Once(judge)
    statuses = [found.status for _ in range(2) for _, found in once.evaluate(asked("a"))]
    assert statuses == [EvalStatus.HARNESS_ERROR, EvalStatus.PASSED]


def test_random_programs_begin_with_the_seed_and_none_comes_twice():
    task = load_task("swiglu")
    found = list(islice(ablation.random_programs(task, 3), 12))
    assert found[0].text == task.seed_source
    assert len({ast_hash(one.text) for one in found}) == 12
    assert found == list(islice(ablation.random_programs(task, 3), 12))
    assert found[1:] != list(islice(ablation.random_programs(task, 4), 12))[1:]


def test_every_arm_stays_within_its_evaluations_and_the_seed_alone_changes_nothing_but_tunables(monkeypatch):
    judge = Judge()
    monkeypatch.setattr(ablation, "make_evaluator", lambda config, task: judge)
    options = argparse.Namespace(evaluator="cpu", settings={}, seeds=[0], evaluations=10)
    (found,) = ablation.measured_task("swiglu", options)
    assert set(found["arms"]) == {*ablation.ARMS, ablation.RANDOM, ablation.OPTUNA}
    assert all(1 <= len(row["curves"][0]) <= 10 for row in found["arms"].values())
    assert found["best_known"] == max(row["best"][0] for row in found["arms"].values())


def test_the_whole_engine_differs_from_each_of_its_lesser_ones_in_one_part():
    full = ablation.config_of("swiglu", {"type": "cpu"}, 0, 10, ablation.FULL).search
    for arm, changed in ablation.ARMS.items():
        other = ablation.config_of("swiglu", {"type": "cpu"}, 0, 10, {**ablation.FULL, **changed}).search
        differs = {name for name in type(full).model_fields if getattr(full, name) != getattr(other, name)}
        assert differs == set(changed), arm


def test_evaluations_are_counted_to_the_first_that_is_near_enough():
    curves = [ablation.best_so_far(speedups) for speedups in ([1.0, None, 1.9, 2.0], [None, 1.0], [1.0, 0.5, 1.95])]
    assert curves == [[1.0, 1.0, 1.9, 2.0], [0.0, 1.0], [1.0, 1.0, 1.95]]
    row = ablation.summary(curves, 2.0)
    assert row["reached"] == [3, None, 3]
    assert (row["least"], row["median"], row["most"]) == (3, 3, None)
    assert row["best"] == [2.0, 1.0, 1.95]


def result():
    arms = {key: [[1.0, 2.0], [1.0, 1.0, 1.0]] for key in (*ablation.ARMS, ablation.RANDOM, ablation.OPTUNA)}
    arms["full"] = [[2.0], [1.0, 2.0]]
    rows = {arm: ablation.summary(curves, 2.0) for arm, curves in arms.items()}
    return {
        "kind": "modelled",
        "share": 0.95,
        "evaluations": 3,
        "commit": "c" * 40,
        "command": "python -m benchmarks.ablation",
        "hardware": {"processor": "one"},
        "tasks": {"a<b": {"seeds": [0, 1], "best_known": 2.0, "arms": rows}},
    }


def test_the_table_says_what_was_not_reached_and_compares_medians():
    rows = ablation_shown._rows("t", result()["tasks"]["a<b"])
    assert rows[0].startswith("| t (best known 2.00x, 2 seeds) | full | 1, 2 | 1.5 (1 to 2) | 1.00x |")
    assert rows[1].startswith("|  | without archive | 2, not reached | not reached (2 to not reached) | - |")


def test_the_figure_is_an_svg_with_a_line_for_every_arm():
    drawn = ElementTree.fromstring(ablation_shown.figure(result()))
    space = "{http://www.w3.org/2000/svg}"
    assert len(drawn.findall(f"{space}polyline")) == 6
    assert "a<b" in [text.text for text in drawn.findall(f"{space}text")]


def test_a_run_that_ended_early_keeps_its_best_in_the_middle_line():
    assert ablation_shown.middle([[1.0, 3.0], [2.0], [1.0, 1.0, 5.0]]) == [1.0, 2.0, 3.0]
