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


ANSWER = """import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def twice_kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < count) * 2.0, mask=at < count)


def triton_twice(x: torch.Tensor):
    x = x.contiguous()
    out = torch.empty_like(x)
    twice_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return triton_twice(x)
"""
PROBLEM = """import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2

rows = 4096
cols = 1024

def get_inputs():
    return [torch.rand(rows, cols)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def suite(tmp_path):
    for level, name, text in ((1, "2_Twice", PROBLEM), (1, "10_Small", PROBLEM.replace("4096", "8")), (2, "4_No", "")):
        (tmp_path / f"level{level}").mkdir(exist_ok=True)
        (tmp_path / f"level{level}" / f"{name}.py").write_text(text)
    return f"kernelbench:{tmp_path}"


def test_a_suite_is_listed_by_number_and_by_level(suite):
    document = json.loads(call("tasks", "list", suite, "--level", "1", "--json").out)
    assert [one["task"] for one in document["problems"]] == [f"{suite}/level1/2", f"{suite}/level1/10"]
    assert f"{suite}/level2/4" in json.loads(call("tasks", "list", suite, "--json").out)["problems"][2]["task"]
    assert call("tasks", "list", "nowhere:x").code == 2


def test_checking_a_suite_says_of_each_problem_whether_it_can_be_used_and_why_not(suite):
    outcome = call("tasks", "check", suite)
    assert outcome.code == 2
    assert "too small to time" in outcome.out
    assert "defines no Model" in outcome.out
    assert call("tasks", "check", f"{suite}/level1/2").code == 0


def test_an_answer_in_kernelbench_s_form_is_judged_as_it_is(suite, tmp_path):
    (tmp_path / "answer.py").write_text(ANSWER)
    outcome = call("evaluate", str(tmp_path / "answer.py"), "--task", f"{suite}/level1/2")
    assert outcome.code == 0, outcome.out + outcome.err
    (tmp_path / "answer.py").write_text(ANSWER.replace("* 2.0", "* 3.0"))
    outcome = call("evaluate", str(tmp_path / "answer.py"), "--task", f"{suite}/level1/2")
    assert outcome.code == 3
    assert "wrong_value" in outcome.out
