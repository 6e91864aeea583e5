"""`kernevo doctor`: says what is missing and leaves with 4 when nothing can run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluator.errors import HarnessError
from evaluator.gpu_probe import NO_GPU, Finding
from evo.cli import doctor, doctor_gpu
from tests.evo.cli_call import call

JUDGING = doctor._judging
ASK_PROBE = doctor_gpu.ask_probe


TORCH = Finding("import torch", "ok", "2.13")
BUSY = Finding("GPU 0", "warn", "NVIDIA H200, in use by process 7 (python)", "wait for it")


def answer(*findings: Finding, code: int | None = 0, errors: str = "", noise: str = "") -> doctor_gpu.Answer:
    """What the probe would print and end with."""
    lines = [json.dumps(finding._asdict()) for finding in (TORCH, *findings)]
    return doctor_gpu.Answer(code, "\n".join([noise, *lines]), errors)


@pytest.fixture(autouse=True)
def _quick(tmp_path, monkeypatch):
    """A folder of one's own, and neither torch nor a worker started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(doctor_gpu, "ask_probe", lambda: answer(*NO_GPU))
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
    monkeypatch.setattr(doctor.metadata, "version", {"torch": "2.3.1+cpu", "triton": "3.9.0", "ray": "2"}.__getitem__)
    outcome = call("doctor")
    assert outcome.code == 4
    assert "2.3.1+cpu is older than 2.11" in outcome.err
    assert "pip install 'torch>=2.11'" in outcome.out
    assert "judging" not in outcome.out

    def missing(name: str) -> str:
        raise doctor.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "version", missing)
    assert "not installed" in call("doctor").err


def test_a_missing_ray_is_no_failure_and_says_how_to_get_it(monkeypatch):
    def version(name: str) -> str:
        if name == "ray":
            raise doctor.metadata.PackageNotFoundError(name)
        return "9.9"

    monkeypatch.setattr(doctor.metadata, "version", version)
    (found,) = [check for check in document()["checks"] if check["name"] == "ray"]
    assert found["state"] == "info"
    assert "pip install 'kernevo[ray]'" in found["detail"]


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


def test_without_a_gpu_the_way_on_is_the_cpu_evaluator():
    outcome = call("doctor")
    assert outcome.code == 0
    assert "type: cpu" in outcome.out
    assert not {"ncu", "GPU locks", "hardware counters"} & set(states())


def test_with_a_gpu_every_finding_of_the_probe_is_shown_and_what_lies_beside_it(monkeypatch):
    found = [BUSY, Finding("GPU 0: NVML", "ok", "energy counter readable")]
    monkeypatch.setattr(doctor_gpu, "ask_probe", lambda: answer(*found, noise="a library's greeting\n{}\n[1]"))
    outcome = call("doctor")
    assert outcome.code == 0
    assert "in use by process 7 (python)" in outcome.out
    assert "fix: wait for it" in outcome.out
    known = {"GPU 0": "warn", "GPU 0: NVML": "ok", "GPU locks": "ok", "import torch": "ok"}
    assert known.items() <= states().items()
    assert {"ncu", "compute-sanitizer", "hardware counters"} <= set(states())


@pytest.mark.parametrize(
    ("code", "errors", "said"),
    [
        (-11, "", "SIGSEGV"),
        (1, "Traceback\nRuntimeError: CUDA error: unknown error\n", "unknown error"),
        (None, "", "still running after 180 s"),
    ],
)
def test_a_driver_that_kills_or_hangs_the_probe_is_a_finding(monkeypatch, code, errors, said):
    monkeypatch.setattr(doctor_gpu, "ask_probe", lambda: answer(BUSY, code=code, errors=errors))
    outcome = call("doctor")
    assert outcome.code == 0
    assert states()["GPU probe"] == "warn"
    assert said in outcome.out
    assert "in use by process 7" in outcome.out


def test_torch_that_cannot_be_imported_is_unusable(monkeypatch):
    broken = doctor_gpu.Answer(1, "", "Traceback\nImportError: libcudart.so.13: no such file")
    monkeypatch.setattr(doctor_gpu, "ask_probe", lambda: broken)
    outcome = call("doctor")
    assert outcome.code == 4
    assert "libcudart.so.13" in outcome.err


@pytest.mark.parametrize(
    ("text", "user", "state", "said"),
    [
        ("RmProfilingAdminOnly: 0\n", 1000, "ok", "everybody"),
        ("Other: 3\nRmProfilingAdminOnly: 1\n", 1000, "info", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("RmProfilingAdminOnly: 1\n", 0, "info", "you are root"),
        ("", 1000, "info", "you are not root"),
        (None, 0, "info", "you are root"),
    ],
)
def test_who_may_read_counters_is_the_drivers_word(monkeypatch, tmp_path, text, user, state, said):
    parameters = tmp_path / "params"
    if text is not None:
        parameters.write_text(text)
    monkeypatch.setattr(doctor_gpu, "PARAMETERS", parameters)
    monkeypatch.setattr(doctor_gpu.os, "geteuid", lambda: user)
    found = doctor_gpu.counters()
    assert found.state == state
    assert said in found.detail


def test_a_tool_is_shown_with_its_version_and_a_missing_one_with_what_it_costs(monkeypatch, tmp_path):
    tool = tmp_path / "ncu"
    tool.write_text(
        "#!/bin/sh\necho 'NVIDIA (R) Nsight Compute Command Line Profiler'\necho 'Version 2025.1.1.0 (build 3)'\n"
    )
    tool.chmod(0o755)
    monkeypatch.setattr("evaluator.gpu_tools.TOOLKITS", ())
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(doctor_gpu, "ask_probe", lambda: answer(BUSY))
    found = {check.name: check for check in doctor_gpu.gpu_checks()}
    assert found["ncu"].state == "ok"
    assert found["ncu"].detail == f"2025.1.1.0, {tool}"
    assert found["compute-sanitizer"].state == "info"
    assert "not installed" in found["compute-sanitizer"].detail


def test_a_folder_for_locks_that_cannot_be_used_is_a_warning(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(doctor_gpu, "ask_probe", lambda: answer(BUSY))
    assert call("doctor").code == 0
    assert states()["GPU locks"] == "warn"


def test_the_probe_itself_answers_on_any_machine(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(doctor_gpu, "ask_probe", ASK_PROBE)
    assert [check.name for check in doctor_gpu.gpu_checks()] == ["import torch", *(found.name for found in NO_GPU)]


@pytest.mark.gpu
def test_the_probe_finds_out_what_a_gpu_can_measure(monkeypatch):
    monkeypatch.setattr(doctor_gpu, "ask_probe", ASK_PROBE)
    checks = {check.name: check for check in doctor_gpu.gpu_checks()}
    assert "GPU probe" not in checks
    assert {"GPU 0", "GPU 0: NVML", "GPU 0: ceilings", "GPU 0: L2"} <= set(checks)
    assert checks["GPU 0: profiler"].state == "ok"


def test_a_model_in_this_process_is_looked_for_and_not_loaded(tmp_path, monkeypatch):
    from tests.policy.tiny_model import write_tiny_model

    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    model = write_tiny_model(tmp_path / "model", ["some text"])
    (model / "model.safetensors").unlink()  # what is not there cannot be loaded
    config = "task: softmax\nbudget: {{evaluations: 3}}\npolicy: {{type: transformers, device: cpu, {}}}\n"
    Path("good.yaml").write_text(config.format(f"model: {model}"))
    good = call("doctor", "--policy", "good.yaml")
    assert good.code == 0, good.out
    assert "with a chat template" in good.out
    Path("bad.yaml").write_text(config.format(f"model: {tmp_path}, adapter: {tmp_path}"))
    bad = call("doctor", "--policy", "bad.yaml")
    assert bad.code == 4
    assert "holds no config.json" in bad.out
    assert "holds no adapter_config.json" in bad.out
