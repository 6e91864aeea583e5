"""Tasks whose reference nobody trusts: judged as usual, behind walls, and checked by a host that believes nothing."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import socket
from pathlib import Path

import pytest

from evaluator.errors import TaskError
from evaluator.foreign import ForeignTask, make_task
from evaluator.foreign_host import ForeignJudges, JudgeLostError
from evaluator.testing import REFERENCE, RIGHT, SEED, TASK, WRONG
from evaluator.types import EvalStatus, KernelSource, Workload

SMALL = (Workload(name="small", params={"M": 3, "N": 40}),)
GIVEN = {"dtype": "float32", "workloads": SMALL, "check_shapes": SMALL}
LOOK = """
import ctypes, json, os, socket, subprocess, sys, threading

def tried(act):
    try:
        return str(act())
    except Exception as error:
        return type(error).__name__

parent = os.getppid()
daemon = "import os, time; os.setsid(); time.sleep(1000)"
found = {
    "secret": os.environ.get("KERNEVO_TEST_SECRET"),
    "user": os.getuid(),
    "parent's environment": tried(lambda: open(f"/proc/{SERVER}/environ").read()),
    "passwords": tried(lambda: open("/etc/passwd").read()),
    "writing": tried(lambda: open(OUTSIDE, "w").write("x")),
    "reading": tried(lambda: open(KNOWN).read()),
    "socket": tried(lambda: socket.socket().connect(("127.0.0.1", PORT))),
    "daemon": subprocess.Popen([sys.executable, "-c", daemon]).pid,
}
raise RuntimeError(json.dumps(found))
"""


SETTINGS = {"type": "cpu", "workers": 2, "timeout_s": 20.0, "memory_mb": 4096, "cache": True, "seed": 1}


@pytest.fixture(scope="module")
def judges():
    made = ForeignJudges(SETTINGS)
    yield made
    made.close()


def foreign(reference=REFERENCE, **more):
    return ForeignTask(reference_code=reference, **{**GIVEN, **more})


def test_a_foreign_task_gets_the_verdicts_that_a_task_of_ours_gets(judges):
    judge = judges.start(foreign(seed_code=SEED))
    sources = [RIGHT["the seed"], WRONG["a wrong value"][0], WRONG["an import of ctypes"][0]]
    found = list(judge.judge(sources, [120.0] * 3))
    assert [one.status for one in found] == [EvalStatus.PASSED, EvalStatus.WRONG_VALUE, EvalStatus.REJECTED_STATIC]
    assert found[0].speedup == pytest.approx(1.0)
    assert found[0].kind == "modelled"
    (again,) = judge.judge(sources[:1], [60.0])
    assert again.status.passed
    judge.close()


def test_a_hostile_reference_sees_reaches_and_leaves_nothing(monkeypatch, tmp_path):
    judges = ForeignJudges(SETTINGS)
    monkeypatch.setenv("KERNEVO_TEST_SECRET", "hunter2")
    known = tmp_path / "known"
    known.write_text("ours")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        values = {
            "SERVER": os.getpid(),
            "OUTSIDE": str(tmp_path / "mark"),
            "KNOWN": str(known),
            "PORT": listening.getsockname()[1],
        }
        head = "".join(f"{name} = {value!r}\n" for name, value in values.items())
        judge = judges.start(foreign(head + LOOK + REFERENCE))
        with pytest.raises(TaskError) as refused:
            list(judge.judge([RIGHT["the seed"]], [60.0]))
    found = json.loads(re.search(r"\{.*\}", refused.value.message).group())
    refusals = [found[name] for name in ("parent's environment", "passwords", "writing", "reading", "socket")]
    assert refusals == ["PermissionError"] * 5
    assert found["secret"] is None
    assert os.getuid() != 0 or found["user"] != 0
    assert not (tmp_path / "mark").exists()
    assert Path(f"/proc/{found['daemon']}").exists()
    judges.close()
    assert not Path(f"/proc/{found['daemon']}").exists()


def test_a_reference_that_never_ends_is_ended_by_the_limit_and_the_others_go_on(judges):
    stuck = judges.start(foreign("while True:\n    pass\n" + REFERENCE))
    with pytest.raises(JudgeLostError, match="not done after 3 s") as lost:
        list(stuck.judge([RIGHT["the seed"]], [3.0]))
    assert lost.value.timeout
    stuck.close()
    other = judges.start(foreign())
    (found,) = other.judge([RIGHT["the seed"]], [120.0])
    assert found.status.passed
    assert found.speedup is None  # no kernel was given to compare with
    other.close()


def test_a_judge_that_is_forgotten_or_whose_ancestor_is_killed_takes_no_other_with_it(judges):
    judge = judges.start(foreign())
    list(judge.judge([WRONG["a syntax error"][0]], [60.0]))
    del judge
    gc.collect()
    judge = judges.start(foreign())
    os.kill(judges._nursery._process.pid, signal.SIGKILL)
    with pytest.raises(JudgeLostError):
        list(judge.judge([WRONG["a syntax error"][0]], [60.0]))
    judge.close()
    judges._nursery._process.wait()
    judge = judges.start(foreign())
    (found,) = judge.judge([WRONG["a syntax error"][0]], [60.0])
    assert found.status is EvalStatus.SYNTAX_ERROR
    judge.close()


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (ForeignTask(task="sofmax"), "no shipped task 'sofmax'"),
        (foreign("def f(:\n"), "reference_code.py:1"),
        (foreign("M = 1\nN = 1\n"), "defines no Model"),
        (foreign(workloads=(Workload(name="big", params={"K": 3}),)), "parameter K is no top-level literal"),
        (foreign(REFERENCE.replace("x.sum(dim=1)", "x.smu(dim=1)")), "'Tensor' object has no attribute 'smu'"),
        (foreign(REFERENCE.replace("x.sum(dim=1)", "x.sum(dim=1) * 0")), "passes every check"),
    ],
)
def test_what_is_wrong_with_a_task_is_said_without_our_paths(judges, task, said):
    judge = judges.start(task)
    with pytest.raises(TaskError, match=re.escape(said)) as refused:
        list(judge.judge([RIGHT["the seed"]], [120.0]))
    assert "/tmp" not in str(refused.value)
    judge.close()


def test_shapes_and_dtype_are_found_out_where_they_are_not_given(tmp_path):
    made = make_task(ForeignTask(reference_code=REFERENCE), tmp_path)
    assert (made.dtype, made.op_policy) == ("float32", "mixed")
    assert made.workloads[0].params == {"M": 64, "N": 128}
    assert {shape.name for shape in made.check_shapes} == {"one", "prime", "ragged", "even"}


def test_a_shipped_task_can_be_changed_but_its_files_are_not(tmp_path):
    made = make_task(ForeignTask(task="softmax", workloads=SMALL, op_policy="free"), tmp_path)
    assert (made.workloads, made.op_policy) == (SMALL, "free")
    assert made.seed_source
    assert not list(tmp_path.iterdir())


def test_the_key_of_a_task_changes_with_everything_that_changes_a_verdict():
    tasks = [
        foreign(),
        foreign(seed_code=SEED),
        foreign(allow_tf32=True),
        foreign(REFERENCE + "\n"),
        foreign(dtype="x"),
    ]
    assert len({task.key for task in tasks}) == len(tasks)
    assert foreign().key == foreign().key


def test_an_answer_about_another_kernel_is_not_believed(judges, monkeypatch):
    judge = judges.start(foreign())
    (found,) = judge.judge([RIGHT["the seed"]], [120.0])
    forged = {"evaluation": found.model_dump(mode="json")}
    monkeypatch.setattr(judge, "_ask", lambda command, seconds, **more: forged)
    with pytest.raises(JudgeLostError, match="about another kernel"):
        list(judge.judge([KernelSource(text="other")], [1.0]))
    for nonsense in (None, [], {"evaluation": 3}, {}, {"refused": 3}):
        monkeypatch.setattr(judge, "_ask", lambda command, seconds, answer=nonsense, **more: answer)
        with pytest.raises(JudgeLostError):
            list(judge.judge([RIGHT["the seed"]], [1.0]))
    judge.close()


@pytest.mark.gpu
def test_the_gpu_evaluator_measures_foreign_tasks_side_by_side():
    made = ForeignJudges({"type": "gpu", "workers": 1, "device": 0, "timing": "screen", "baseline": "eager"})
    try:
        first = made.start(
            ForeignTask(reference_code=REFERENCE, **{**GIVEN, "workloads": TASK.workloads}), memory_share=0.5
        )
        second = made.start(ForeignTask(task="softmax"), memory_share=1.0, allow_busy=True)
        (row_sums,) = first.judge([RIGHT["the seed"]], [300.0])
        assert row_sums.status.passed
        assert row_sums.kind == "measured"
        assert row_sums.speedup
        from evaluator.task import load_task

        (softmax,) = second.judge([KernelSource(text=load_task("softmax").seed_source)], [300.0])
        assert softmax.status.passed
        (again,) = first.judge([WRONG["a wrong value"][0]], [300.0])
        assert again.status is EvalStatus.WRONG_VALUE
    finally:
        made.close()
