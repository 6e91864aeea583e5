"""`kernevo evaluate`: a readable verdict and an exit code that scripts can trust."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from evaluator.task import load_task
from evaluator.types import EvalStatus, Evaluation, KernelSource
from tests.evo import fakes
from tests.evo.cli_call import call


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_seed_kernel_passes_and_every_number_says_modelled():
    Path("seed.py").write_text(load_task("softmax").seed_source)
    outcome = call("evaluate", "seed.py", "--task", "softmax")
    assert outcome.code == 0, outcome.out + outcome.err
    assert "1.000x modelled (h200) over the task's seed" in outcome.out
    for workload in load_task("softmax").workloads:
        row = next(line for line in outcome.out.splitlines() if line.startswith(workload.name))
        assert "modelled (h200)" in row


def test_a_kernel_that_is_not_correct_leaves_with_3_and_the_reason():
    Path("broken.py").write_text("def broken(:\n")
    outcome = call("evaluate", "broken.py", "--task", "softmax")
    assert outcome.code == 3
    assert "syntax_error" in outcome.out
    assert "modelled" not in outcome.out


@pytest.mark.parametrize(
    ("status", "code"), [(EvalStatus.PASSED, 0), (EvalStatus.WRONG_VALUE, 3), (EvalStatus.HARNESS_ERROR, 1)]
)
def test_json_output_holds_the_whole_evaluation_and_the_exit_code_agrees(monkeypatch, status, code):
    source = KernelSource(text=fakes.SEED)
    judged = fakes.passed(source, 0.5, 1.0) if status.passed else fakes.failed(source, status, "why")
    monkeypatch.setattr("evo.cli.evaluate.judge", lambda *args, **settings: judged)
    Path("kernel.py").write_text(fakes.SEED)
    outcome = call("evaluate", "kernel.py", "--task", "softmax", "--json")
    document = json.loads(outcome.out)
    assert outcome.code == code
    assert Evaluation.model_validate(document["evaluation"]) == judged
    assert document["passed"] is status.passed
    assert (document["latency_ms"], document["speedup"]) == ((0.5, 2.0) if status.passed else (None, None))
    assert document["timing_kind"] == ("modelled" if status.passed else None)
    assert call("evaluate", "kernel.py", "--task", "softmax").code == code


def test_the_thorough_mode_reaches_the_one_worker_there_is_and_prints_what_it_says(monkeypatch):
    source = KernelSource(text=fakes.SEED)
    asked = []

    def create(settings, task):
        asked.append(settings)
        return nullcontext(SimpleNamespace(evaluate=lambda jobs: [(jobs[0], judged)]))

    judged = fakes.passed(source, 0.5, 1.0).model_copy(update={"explain": "memcheck found nothing at one"})
    monkeypatch.setattr("evaluator.backends.create", create)
    Path("kernel.py").write_text(fakes.SEED)
    command = ("evaluate", "kernel.py", "--task", "softmax", "--evaluator", "gpu")
    assert "memcheck found nothing" in call(*command, "--thorough").out
    assert "memcheck found nothing" not in call(*command).out
    assert [settings["thorough"] for settings in asked] == [True, False]
    assert [settings["workers"] for settings in asked] == [1, 1]  # more would only wait


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nowhere.py", "--task", "softmax"], "nowhere.py: cannot be read"),
        ([".", "--task", "softmax"], "cannot be read: Is a directory"),
        (["kernel.py", "--task", "sofmax"], "softmax"),
        (["kernel.py", "--task", "softmax", "--target", "h2000"], "did you mean h200?"),
        (["kernel.py"], "Missing option '--task'"),
        (["kernel.py", "--task", "softmax", "--thorough"], "the cpu evaluator has no thorough mode"),
        (["binary.py", "--task", "softmax"], "binary.py: not UTF-8 text (byte 0)"),
    ],
)
def test_wrong_arguments_leave_with_2(args, said):
    Path("kernel.py").write_text("pass\n")
    Path("binary.py").write_bytes(b"\xff\xfe")
    outcome = call("evaluate", *args)
    assert outcome.code == 2
    assert said in outcome.err
