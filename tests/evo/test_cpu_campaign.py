"""The real thing, small: a campaign with the cpu evaluator through the command line, killed, interrupted, resumed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evaluator.task import SHIPPED
from tests.evo.test_resume import ROOT, size, state


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A softmax task with one small workload, and a config for it."""
    folder = tmp_path_factory.mktemp("cpu")
    shutil.copytree(SHIPPED / "softmax", folder / "task")
    path = folder / "task" / "task.yaml"
    lines = path.read_text().splitlines(keepends=True)
    kept = [line for line in lines if "8192x4096" not in line and "1024x16384" not in line]
    path.write_text("".join(kept))
    (folder / "config.yaml").write_text(
        f"task: {folder / 'task'}\nseed: 3\nrun" + f"s_dir: {folder}\nbudget: {{evaluations: 9}}\n"
        "search: {offspring: 4}\n"
        f"evaluator: {{type: cpu, cache_dir: {folder / 'cache'}}}\nmonitors: [console]\n"
    )
    return folder


def kernevo(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "evo.cli.main", *arguments],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def done(process: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
    out, err = process.communicate(timeout=280)
    assert process.returncode == code, f"{out}\n{err}"
    return out, err


@pytest.fixture(scope="module")
def whole(folder):
    out, err = done(kernevo("run", str(folder / "config.yaml"), "--name", "whole", "--set", "evaluator.cache=false"))
    assert "modelled" in out
    assert "generation   2" in err
    return folder / "whole"


def wait_for_growth(process: subprocess.Popen[str], path: Path, target: int) -> None:
    while process.poll() is None and size(path) < target:
        pass


def test_a_campaign_that_is_killed_with_its_workers_resumes_to_the_same_end(folder, whole):
    path = folder / "killed"
    process = kernevo("run", str(folder / "config.yaml"), "--name", "killed", "--set", "evaluator.cache=false")
    wait_for_growth(process, path, size(whole) // 2)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    done(kernevo("resume", str(path)))
    assert state(path) == state(whole)


def test_ctrl_c_in_a_terminal_drains_and_blames_no_kernel(folder, whole):
    path = folder / "interrupted"
    process = kernevo("run", str(folder / "config.yaml"), "--name", "interrupted", "--set", "evaluator.cache=false")
    wait_for_growth(process, path, size(whole) // 2)
    os.killpg(process.pid, signal.SIGINT)  # a terminal signals the whole foreground group
    _, err = done(process, 130)
    assert err.strip().splitlines()[-1].endswith(f"kernevo resume {path}")
    done(kernevo("resume", str(path)))
    assert state(path) == state(whole)


def test_the_elite_is_confirmed_in_a_new_process(folder, whole):
    done(kernevo("harvest", str(whole), "--top", "1", "--out", str(folder / "harvested")))
    (kernel,) = (folder / "harvested").glob("*_1_*.py")
    out, _ = done(kernevo("evaluate", str(kernel), "--task", str(folder / "task")))
    assert "passed" in out
    assert "modelled (h200)" in out
