"""`kernevo tasks`: what there is, and whether it is sound."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from evaluator.task import SHIPPED, list_tasks, load_task
from evaluator.types import EvalStatus, Evaluation, Timing
from tests.evo.cli_call import call


def test_every_shipped_task_is_listed_with_what_it_computes():
    outcome = call("tasks", "list")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    for name in list_tasks():
        row = next(line for line in lines if line.startswith(f"{name} "))
        assert load_task(name).dtype in row


def test_the_json_list_carries_what_a_script_needs():
    document = json.loads(call("tasks", "list", "--json").out)
    assert [task["name"] for task in document["tasks"]] == list_tasks()
    assert all(task["has_seed"] and len(task["fingerprint"]) == 64 for task in document["tasks"])


def test_a_task_shows_its_shapes_and_on_request_its_sources():
    task = load_task("softmax")
    plain = call("tasks", "show", "softmax")
    assert plain.code == 0
    for shape in (*task.workloads, *task.check_shapes):
        assert shape.name in plain.out
    assert task.reference_source not in plain.out
    full = call("tasks", "show", "softmax", "--source")
    assert task.reference_source in full.out
    assert task.seed_source in full.out
    document = json.loads(call("tasks", "show", "softmax", "--source", "--json").out)
    assert document["seed_source"] == task.seed_source


@pytest.mark.parametrize("command", ["show", "check"])
def test_an_unknown_task_is_answered_with_the_nearest(command):
    outcome = call("tasks", command, "sofmax")
    assert outcome.code == 2
    assert "softmax" in outcome.err


def test_a_malformed_task_folder_is_a_positioned_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    Path("mine/task.yaml").write_text("dtype: float32\ndtypo: float16\n")
    Path("mine/reference.py").write_text("M = 4\n")
    outcome = call("tasks", "check", "mine")
    assert outcome.code == 2
    assert "mine/task.yaml:2:1" in outcome.err


def test_checking_a_task_judges_its_seed(monkeypatch):
    timings = {"w": Timing(kind="modelled", median_ms=0.1, baseline_ms=0.1)}
    passed = Evaluation(
        source_sha="0" * 64,
        task="softmax",
        evaluator="cpu",
        status=EvalStatus.PASSED,
        timings=timings,
        checks_passed=4,
        checks_total=4,
        target="h200",
    )
    monkeypatch.setattr("evo.cli.evaluate.judge", lambda task, source, target: passed)
    outcome = call("tasks", "check", "softmax")
    assert outcome.code == 0
    assert "4 of 4 passed" in outcome.out
    assert "0.1 ms modelled (h200)" in outcome.out


def test_a_task_whose_seed_is_wrong_is_at_fault_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SHIPPED / "softmax", "mine")
    Path("mine/seed.py").write_text("def broken(:\n")
    outcome = call("tasks", "check", "mine")
    assert outcome.code == 2
    assert "seed of task mine is not a correct kernel: syntax_error" in outcome.err
