"""What the proof of learning is made of is measured once and answered from a file."""

from __future__ import annotations

import json

import pytest

from benchmarks.learning import measure, pairs, records
from benchmarks.learning.records import Measured, RecordedEvaluator
from evaluator.task import load_task
from evaluator.types import EvalStatus, Evaluation, EvaluationJob, KernelSource, Timing

SOFTMAX = load_task("softmax")
SEED = KernelSource(text=SOFTMAX.seed_source or "")


def passed(source, ms):
    timings = {
        workload.name: Timing(kind="modelled", median_ms=ms * number, baseline_ms=1.0)
        for number, workload in enumerate(SOFTMAX.workloads, start=1)
    }
    return Evaluation(source_sha=source.sha, task="softmax", evaluator="cpu", status=EvalStatus.PASSED, timings=timings)


class Counting:
    """Passes everything; the longer the source, the quicker the kernel."""

    def __init__(self):
        self.task = SOFTMAX
        self.judged = []

    def evaluate(self, jobs):
        for job in jobs:
            self.judged.append(job.source.sha)
            yield job, passed(job.source, 1.0 / len(job.source.text))


def test_training_and_held_out_pairs_have_no_task_in_common_and_are_many():
    assert not set(pairs.FOLDS[1][0]) & set(pairs.FOLDS[1][1])
    assert len(pairs.pairs(pairs.FOLDS[1][0])) >= 8
    assert len(pairs.pairs(pairs.FOLDS[1][1])) >= 8
    assert all(len(task.workloads) == 1 for task in pairs.pairs(pairs.FOLDS[1][0]))


def test_a_parent_has_a_child_for_each_answer():
    made = pairs.children(SOFTMAX, SEED.text)
    assert {step.name for step, _ in made} <= set(pairs.NAMES)
    assert all(child != SEED for _, child in made)
    assert len(made) >= 8


def test_what_was_judged_before_is_not_judged_again(tmp_path):
    made = [("", None, SEED)] + [(SEED.sha, step, child) for step, child in pairs.children(SOFTMAX, SEED.text)]
    first = Counting()
    measure.Book(tmp_path / "rows.jsonl", until=1e18).judge(first, made[:3])
    assert len(first.judged) == 3
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"torn')
    again = Counting()
    measure.Book(tmp_path / "rows.jsonl", until=1e18).judge(again, made[:4])
    assert again.judged == [made[3][2].sha]
    assert len(records.read(tmp_path / "rows.jsonl")) == 4


def test_what_our_own_harness_failed_on_is_judged_again(tmp_path):
    class Lost(Counting):
        def evaluate(self, jobs):
            for job, found in super().evaluate(jobs):
                yield job, found.model_copy(update={"status": EvalStatus.WORKER_LOST, "timings": {}})

    measure.Book(tmp_path / "rows.jsonl", until=1e18).judge(Lost(), [("", None, SEED)])
    again = Counting()
    measure.Book(tmp_path / "rows.jsonl", until=1e18).judge(again, [("", None, SEED)])
    assert again.judged == [SEED.sha]
    (row,) = records.read(tmp_path / "rows.jsonl")
    assert row.evaluation.status == EvalStatus.PASSED


@pytest.mark.parametrize("name", [*pairs.FOLDS[1][0], *pairs.FOLDS[1][1]])
def test_what_applies_under_one_shape_alone_is_measured_too(name):
    task = load_task(name)
    measured = {child.sha for _, child in pairs.every_child(task, task.seed_source)}
    for pair in pairs.pairs([name]):
        assert {child.sha for _, child in pairs.children(pair, task.seed_source)} <= measured


def test_nothing_is_judged_once_the_time_is_up(tmp_path):
    evaluator = Counting()
    measure.Book(tmp_path / "rows.jsonl", until=0.0).judge(evaluator, [("", None, SEED)])
    assert evaluator.judged == []


def test_the_parents_are_the_fastest_child_and_the_one_in_the_middle(tmp_path):
    book = measure.Book(tmp_path / "rows.jsonl", until=1e18)
    made = [(SEED.sha, step, child) for step, child in pairs.children(SOFTMAX, SEED.text)]
    book.judge(Counting(), made)
    lengths = sorted({len(child.text) for _, _, child in made}, reverse=True)
    found = measure.parents(SOFTMAX, book.rows)
    assert len(found) == 2
    assert len(found[0].text) == lengths[0]
    assert found[1] != found[0]


def test_a_recorded_answer_is_of_its_own_shape_and_an_unknown_one_blames_nobody():
    pair = pairs.narrowed(SOFTMAX, 1)
    row = Measured(task="softmax", parent="", step=None, source=SEED, evaluation=records.slim(passed(SEED, 0.25)))
    jobs = [EvaluationJob(job_id="a", source=SEED), EvaluationJob(job_id="b", source=KernelSource(text="x = 1"))]
    with RecordedEvaluator(pair, [row]) as evaluator:
        (_, known), (_, unknown) = evaluator.evaluate(jobs)
    assert list(known.timings) == [pair.workloads[0].name]
    assert known.speedup == 2.0
    assert unknown.status.blames_harness


def test_each_call_says_beside_the_rows_what_judged(tmp_path):
    measure.note_provenance(tmp_path / "rows.jsonl")
    measure.note_provenance(tmp_path / "rows.jsonl")
    found = json.loads((tmp_path / "rows.provenance.json").read_text())
    assert list(found) == ["call 1", "call 2"]
    assert all({"commit", "versions", "hardware", "command"} <= set(one) for one in found.values())
