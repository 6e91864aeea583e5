"""`kernevo doctor`: says what is missing and leaves with 4 when nothing can run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluator.errors import HarnessError
from evo.cli import doctor
from tests.evo.cli_call import call

JUDGING = doctor._judging


@pytest.fixture(autouse=True)
def _quick(tmp_path, monkeypatch):
    """A folder of one's own, and neither torch nor a worker started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(doctor, "_gpu", lambda: doctor.Check("GPU", "info", "none"))
    monkeypatch.setattr(doctor, "_judging", lambda: doctor.Check("judging", "ok", "passed"))


def document() -> dict:
    return json.loads(call("doctor", "--json").out)


def states() -> dict[str, str]:
    return {check["name"]: check["state"] for check in document()["checks"]}


def test_this_machine_is_usable_and_every_finding_is_shown():
    outcome = call("doctor")
    assert outcome.code == 0
    for check in document()["checks"]:
        assert check["name"] in outcome.out
    assert {"platform", "torch", "triton", "ptxas", "cores", "runs", "GPU", "targets", "judging"} <= set(states())


def test_known_targets_are_listed():
    assert "h200" in call("doctor").out


def test_a_missing_or_old_package_is_unusable_and_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(doctor.metadata, "version", {"torch": "2.3.1+cpu", "triton": "3.9.0"}.__getitem__)
    outcome = call("doctor")
    assert outcome.code == 4
    assert "2.3.1+cpu is older than 2.11" in outcome.err
    assert "pip install 'torch>=2.11'" in outcome.out
    assert "judging" not in outcome.out

    def missing(name: str) -> str:
        raise doctor.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "version", missing)
    assert "not installed" in call("doctor").err


def test_a_folder_that_cannot_be_written_is_unusable():
    Path("runs").write_text("a file where the folder should be")
    outcome = call("doctor")
    assert outcome.code == 4
    assert "runs" in outcome.err
    assert "is not a folder" in outcome.err


def test_a_missing_wall_is_a_warning_and_not_a_failure(monkeypatch):
    monkeypatch.setattr("evaluator.sandbox.capabilities", lambda: {"network": "on", "files": "Operation not supported"})
    outcome = call("doctor")
    assert outcome.code == 0
    found = states()
    assert found["sandbox: network"] == "ok"
    assert found["sandbox: files"] == "warn"
    assert "Operation not supported" in outcome.out


def test_a_judge_that_fails_its_probe_is_unusable(monkeypatch):
    def judge(task, source, target):
        raise HarnessError("the worker did not start", "look at its log")

    monkeypatch.setattr("evo.cli.evaluate.judge", judge)
    assert JUDGING() == doctor.Check("judging", "fail", "the worker did not start", "look at its log")


def test_without_ptxas_nothing_can_run(monkeypatch, tmp_path):
    class Found:
        origin = str(tmp_path / "triton" / "__init__.py")

    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: Found)
    outcome = call("doctor")
    assert outcome.code == 4
    assert "ptxas" in outcome.err
