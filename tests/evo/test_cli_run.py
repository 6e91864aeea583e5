"""`kernevo run` and `resume`: results, exit codes, and what is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evaluator.errors import EnvironmentUnusableError
from evaluator.types import EvalStatus
from evo.run import Run
from tests.evo import fakes
from tests.evo.cli_call import call
from tests.evo.cli_driver import fake_parts

ROOT = Path(__file__).parents[2]
CONFIG = "task: softmax\nseed: 3\nbudget: {evaluations: 20}\nsearch: {population: 6, offspring: 5}\nmonitors: [jsonl]\n"


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text(CONFIG)
    with fake_parts():
        yield tmp_path


def all_files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_campaign_prints_its_best_kernel_and_labels_every_number(workplace):
    outcome = call("run", "my.yaml")
    assert outcome.code == 0
    best = Run.load("runs/my").elites(1)[0]
    assert f"{best.id}  {best.speedup:.3f}x modelled (h200), " in outcome.out
    assert outcome.out.count("ms modelled") == 1
    assert "runs/my" in outcome.out


def test_json_output_is_one_document_that_agrees_with_the_run(workplace):
    outcome = call("run", "my.yaml", "--json", "--name", "other", "--set", "budget.evaluations=12")
    document = json.loads(outcome.out)
    run = Run.load("runs/other")
    assert outcome.code == 0
    assert document["schema_version"] == 1
    assert document["evaluations"] == len(run.records()) == 12
    assert document["best"]["id"] == run.elites(1)[0].id
    assert document["best"]["timing_kind"] == "modelled"
    assert Path(document["best"]["path"]).is_file()
    assert document["interrupted"] is False


def test_a_used_run_folder_is_refused_and_untouched(workplace):
    call("run", "my.yaml")
    before = all_files(workplace)
    outcome = call("run", "my.yaml")
    assert outcome.code == 2
    assert "runs/my: already used; nothing was overwritten" in outcome.err
    assert "kernevo resume runs/my" in outcome.err
    assert call("run", "my.yaml", "--dry-run").code == 2
    assert all_files(workplace) == before


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "-x"])
def test_a_name_never_leaves_the_runs_folder(workplace, name):
    outcome = call("run", "my.yaml", f"--name={name}")
    assert outcome.code == 2
    assert "--set name" in outcome.err
    assert not Path("runs").exists()


def test_a_dry_run_prints_the_plan_and_creates_nothing(workplace):
    before = all_files(workplace)
    outcome = call("run", "my.yaml", "--dry-run", "--set", "budget.seconds=90")
    assert outcome.code == 0
    for words in ("runs/my (not created)", "modelled for h200", "evaluations 20, seconds 90", "population 6"):
        assert words in outcome.out
    document = json.loads(call("run", "my.yaml", "--dry-run", "--json").out)
    assert document["config"]["budget"]["evaluations"] == 20
    assert all_files(workplace) == before


def test_a_dry_run_says_when_the_runs_folder_cannot_be_written(workplace):
    Path("file").write_text("")
    outcome = call("run", "my.yaml", "--dry-run", "--set", "runs_dir=file/runs")
    assert outcome.code == 4
    assert "cannot be written" in outcome.err


def test_a_run_says_when_the_runs_folder_cannot_be_written(workplace):
    Path("file").write_text("")
    outcome = call("run", "my.yaml", "--set", "runs_dir=file/runs")
    assert outcome.code == 4
    assert "file/runs/my: cannot be written" in outcome.err
    assert "resume with" not in outcome.err


def test_when_nothing_is_correct_the_exit_code_is_3_and_the_reason_is_shown(workplace):
    class Strict(fakes.FakeEvaluator):
        def _judge(self, source):
            return fakes.failed(source, EvalStatus.WRONG_VALUE, "3 of 8 values differ")

    with fake_parts(evaluator=Strict):
        outcome = call("run", "my.yaml")
    assert outcome.code == 3
    assert "wrong_value: 3 of 8 values differ" in outcome.out


def test_a_full_disk_ends_with_4_and_the_resume_command(workplace, monkeypatch):
    from evo.journal import Journal

    append = Journal.append

    def fill_up(self, kind, data, **how):
        if self._next_seq == 12:
            raise EnvironmentUnusableError("journal.jsonl: cannot be written: No space left on device", "free space")
        return append(self, kind, data, **how)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", fill_up)
        outcome = call("run", "my.yaml")
    assert outcome.code == 4
    assert "No space left on device" in outcome.err
    assert outcome.err.splitlines()[-1] == "resume with: kernevo resume runs/my"
    assert call("resume", "runs/my").code == 0
    assert len(Run.load("runs/my").records()) == 20


def test_a_run_is_resumed_by_its_name_and_a_finished_one_just_shows_its_result(workplace):
    first = json.loads(call("run", "my.yaml", "--json").out)
    again = call("resume", "my", "--json")
    assert again.code == 0
    assert json.loads(again.out) == first


def test_a_run_that_does_not_exist_is_answered_with_the_nearest(workplace):
    call("run", "my.yaml", "--name", "softmax_one")
    outcome = call("resume", "softmax_on")
    assert outcome.code == 2
    assert "did you mean runs/softmax_one?" in outcome.err


def start(folder: Path, *args: str, pause: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.evo.cli_driver", *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "KERNEVO_TEST_PAUSE": str(pause)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_a_verdict(process: subprocess.Popen[str], journal: Path) -> None:
    while process.poll() is None and not (journal.is_file() and b'"evaluated"' in journal.read_bytes()):
        pass
    assert process.poll() is None, process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_ctrl_c_drains_saves_and_prints_the_resume_command(tmp_path, number):
    (tmp_path / "my.yaml").write_text(CONFIG)
    process = start(tmp_path, "run", "my.yaml", pause=0.2)
    wait_for_a_verdict(process, tmp_path / "runs" / "my" / "journal.jsonl")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "resume with: kernevo resume runs/my"
    assert "stopped" in out
    run = Run.load(tmp_path / "runs" / "my")
    assert run.status == "interrupted"
    assert 0 < len(run.records()) < 20


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN], ids=["in a terminal", "in the background"])
def test_a_second_ctrl_c_kills_and_still_prints_the_resume_command(tmp_path, before):
    (tmp_path / "my.yaml").write_text(CONFIG)
    found = signal.signal(signal.SIGINT, before)  # a child inherits what is ignored
    try:
        process = start(tmp_path, "run", "my.yaml", pause=600)
    finally:
        signal.signal(signal.SIGINT, found)
    while process.poll() is None and not (tmp_path / "judging").exists():
        pass
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert "again to kill" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "resume with: kernevo resume runs/my"
    assert Run.load(tmp_path / "runs" / "my").status == "crashed"
