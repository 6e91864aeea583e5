"""The thorough mode: replaying a candidate, and what the tools' words become. Without a GPU the tools are stand-ins."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from evaluator import gpu_machine, sandbox
from evaluator.backends.gpu import GpuEvaluator
from evaluator.cascade import Facts, walk
from evaluator.gpu_cases import DeviceCases
from evaluator.gpu_replay import replay, write_job
from evaluator.gpu_thorough import Thorough
from evaluator.gpu_tools import ToolError, find_tool
from evaluator.judge import Judge
from evaluator.testing import SEED, TASK, changed, jobs
from evaluator.types import EvalStatus, KernelSource, Profile
from tests.evaluator import gpu_tool_cases
from tests.evaluator.test_gpu_backend import SETTINGS, SMALL, one

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
FAULTY = {"memcheck.log": "scale_kernel", "initcheck.log": "scan_kernel", "racecheck.log": "sum_kernel"}
"""By recorded log: a kernel that it speaks against."""

READS_ON_DISCARDS = changed(
    "mask=cols < n_cols, other=0.0)",
    "mask=(cols < n_cols) | LOOSE, other=0.0)\n        x = tl.where(cols < n_cols, x, 0.0)",
    changed(
        "n_cols, BLOCK: tl.constexpr):",
        "n_cols, LOOSE: tl.constexpr, BLOCK: tl.constexpr):",
        changed("x.shape[1], BLOCK=BLOCK", "x.shape[1], LOOSE=x.is_cuda, BLOCK=BLOCK").text,
    ).text,
)
"""Reads behind the last row on the device only, and throws away what it read."""


def replayed(home, source, *workloads):
    """The driver in a process of its own, on the interpreter platform."""
    write_job(home, source, workloads)
    command = [sys.executable, "-P", "-m", "evaluator.gpu_replay", str(home), "interpreter"]
    environment = sandbox.environment(home, {"TRITON_INTERPRET": "1"})
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def inputs(*values):
    return {"init_args": [], "state": {}, "inputs": list(values)}


def test_a_replay_runs_each_workload_twice_and_ends_with_0(tmp_path):
    source = changed("        return out", "        print(x.shape[0], 'rows', out[0].item())\n        return out").text
    done = replayed(tmp_path, source, inputs(torch.ones(3, 5)), inputs(torch.ones(2, 7)))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")[:-1]) == ["2 rows 7.0", "2 rows 7.0", "3 rows 5.0", "3 rows 5.0"]


@pytest.mark.parametrize(
    ("code", "words"),
    [("raise ValueError('no result today')", "ValueError: no result today"), ("raise SystemExit(0)", "SystemExit: 0")],
)
def test_a_candidate_that_does_not_return_ends_its_replay_with_1_and_its_words(tmp_path, code, words):
    done = replayed(tmp_path, changed("return out", code).text, inputs(torch.ones(3, 5)))
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == words


def test_a_replay_writes_to_its_own_folder_only(tmp_path):
    if sandbox.capabilities().get("files") != "on":
        pytest.skip("no file walls on this machine")
    home, other = tmp_path / "home", tmp_path / "other"
    home.mkdir()
    source = f"open('inside', 'w').close()\nopen({str(other)!r}, 'w').close()\n" + SEED
    done = replayed(home, source, inputs(torch.ones(3, 5)))
    assert done.returncode == 1
    assert "PermissionError" in done.stderr
    assert (home / "inside").exists()
    assert not other.exists()


def test_parameters_and_constructor_arguments_reach_the_model(tmp_path, capsys):
    source = (
        "import torch\n\nclass ModelNew(torch.nn.Module):\n    def __init__(self, n):\n        super().__init__()\n"
        "        self.w = torch.nn.Parameter(torch.zeros(n))\n    def forward(self, x):\n"
        "        print((x * self.w).tolist())\n        return x * self.w\n"
    )
    from evaluator.gpu_platform import InterpreterPlatform

    job = {"init_args": [2], "state": {"w": torch.tensor([3.0, 4.0])}, "inputs": [torch.tensor([1.0, 2.0])]}
    replay(InterpreterPlatform(), source, [job])
    assert capsys.readouterr().out == "[3.0, 8.0]\n" * 2


def test_inputs_without_contents_are_drawn_in_their_shape_and_strides(capsys):
    source = (
        "import torch\n\nclass ModelNew:\n    def __call__(self, x):\n"
        "        print(tuple(x.shape), x.stride(), x.dtype, bool(x.float().std() > 0.1))\n"
    )
    from evaluator.gpu_platform import InterpreterPlatform

    shapes = [
        torch.empty_strided((8, 4), (1, 8), dtype=torch.float16, device="meta"),
        torch.empty(16, device="meta").expand(3, 16),
    ]
    replay(InterpreterPlatform(), source, [inputs(shape) for shape in shapes])
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["(8, 4) (1, 8) torch.float16 True", "(3, 16) (0, 1) torch.float32 True"]


@pytest.fixture
def thorough(tmp_path):
    """Both stages on the interpreter platform, as if tools could look into it."""
    folder = tmp_path / "evaluator"
    folder.mkdir()
    machine = gpu_machine.find("interpreter", 0, folder, "h200", False)
    cases = DeviceCases(SMALL, 0, "cpu", 1 << 30)
    return Thorough(cases, Judge(SMALL, 0), dataclasses.replace(machine, has_tools=True), folder)


def facts_of(source=SEED, kernel="sum_kernel"):
    profile = Profile(kind="measured", target="h200")
    return Facts(KernelSource(text=source), checked_kernels={kernel}, profile=profile)


def tools(tmp_path):
    folder = tmp_path / "tools"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.mark.parametrize("log", FAULTY)
def test_the_first_fault_of_an_own_kernel_is_the_verdict(thorough, tmp_path, monkeypatch, log):
    gpu_tool_cases.install(tools(tmp_path), monkeypatch, "compute-sanitizer", log)
    expected = {
        "memcheck.log": (EvalStatus.OUT_OF_BOUNDS, "Invalid __global__ write", "candidate.py:21"),
        "initcheck.log": (EvalStatus.UNINITIALISED, "Uninitialized __global__", "candidate.py:40"),
        "racecheck.log": (EvalStatus.RACE, "race between a write and a read", "candidate.py:41"),
    }
    facts = facts_of(kernel=FAULTY[log])
    found, records = walk(thorough.stages(), facts)
    status, what, where = expected[log]
    assert found.status is status
    assert found.reason.startswith(f"memcheck: {FAULTY[log]} at {where}: {what}")
    assert "\n" not in found.reason
    assert found.explain.startswith(found.reason)
    assert [record.name for record in records] == ["sanitize"]


def test_a_clean_kernel_passes_and_the_note_says_what_looked_at_it(thorough, tmp_path, monkeypatch):
    (tmp_path / "clean.log").write_text(CLEAN)
    gpu_tool_cases.install(tools(tmp_path), monkeypatch, "compute-sanitizer", str(tmp_path / "clean.log"))
    facts = facts_of()
    assert thorough.sanitize(facts) is None
    assert facts.notes == ["memcheck, initcheck, racecheck found nothing at one, prime"]


def test_faults_of_other_kernels_are_not_the_candidates(thorough, tmp_path, monkeypatch):
    gpu_tool_cases.install(tools(tmp_path), monkeypatch, "compute-sanitizer", "memcheck.log")
    assert thorough.sanitize(facts_of(kernel="another_kernel")) is None


def test_a_missing_tool_refuses_nobody_and_claims_nothing(thorough, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tools(tmp_path)))
    gpu_tool_cases.hide_toolkit(monkeypatch)
    facts = facts_of()
    found, _ = walk(thorough.stages(), facts)
    assert found.status.passed
    first, second = facts.notes
    assert first.startswith("not checked by memcheck, initcheck, racecheck: compute-sanitizer is not installed")
    assert second.startswith("no hardware counters: ncu is not installed")
    assert facts.profile.counters == ()
    assert facts.profile.counters_reason.startswith("ncu is not installed")


def test_a_tool_that_dies_refuses_nobody_and_claims_nothing(thorough, tmp_path, monkeypatch):
    for name in ("compute-sanitizer", "ncu"):
        gpu_tool_cases.install_broken(tools(tmp_path), monkeypatch, name)
    facts = facts_of()
    found, _ = walk(thorough.stages(), facts)
    assert found.status.passed
    assert not any("found nothing" in note for note in facts.notes)
    assert "memcheck did not run to its end: code -9" in facts.notes[0]
    assert "code -9" in facts.profile.counters_reason


def test_a_candidate_that_fails_its_replay_is_not_called_clean(thorough, tmp_path, monkeypatch):
    (tmp_path / "clean.log").write_text(CLEAN)
    gpu_tool_cases.install(tools(tmp_path), monkeypatch, "compute-sanitizer", str(tmp_path / "clean.log"))
    facts = facts_of(changed("return out", "raise ValueError('not today')").text)
    found, _ = walk(thorough.stages(), facts)
    assert found.status.passed
    assert facts.notes[0] == ("not checked by compute-sanitizer: its replay ended with code 1: ValueError: not today")
    assert "not today" in facts.profile.counters_reason


def test_counters_go_into_the_profile_and_the_notes(thorough, tmp_path, monkeypatch):
    gpu_tool_cases.install(tools(tmp_path), monkeypatch, "ncu", "ncu.csv")
    facts = facts_of(kernel="softmax_kernel")
    thorough.counters(facts)
    assert [kernel.kernel for kernel in facts.profile.counters] == ["softmax_kernel", "finish_kernel"]
    assert facts.profile.counters_reason == ""
    assert facts.notes[0].startswith("softmax_kernel: DRAM 87 %, SM 31 %")
    assert Profile.model_validate_json(facts.profile.model_dump_json()) == facts.profile


def test_the_log_lies_where_the_candidate_cannot_write(thorough, tmp_path, monkeypatch):
    """The stand-in tells where it was told to write, and a candidate tells where it lives."""
    if sandbox.capabilities().get("files") != "on":
        pytest.skip("no file walls on this machine")
    seen = tmp_path / "seen"
    (tmp_path / "clean.log").write_text(CLEAN)
    gpu_tool_cases.install(tools(tmp_path), monkeypatch, "compute-sanitizer", str(tmp_path / "clean.log"))
    script = tools(tmp_path) / "compute-sanitizer"
    script.write_text(script.read_text().replace("--log-file)", f'--log-file) echo "$2" >> {seen};'))
    forging = changed(
        "        return out",
        "        import pathlib\n        for log in pathlib.Path.cwd().parent.glob('tools-*/*.log'):\n"
        "            log.write_text('forged')\n        return out",
    )
    facts = facts_of(forging.text)
    assert thorough.sanitize(facts) is None
    logs = [Path(line) for line in seen.read_text().splitlines()]
    assert [log.name for log in logs] == ["memcheck.log", "initcheck.log", "racecheck.log"]
    assert facts.notes == ["memcheck, initcheck, racecheck found nothing at one, prime"]


def test_nothing_is_left_behind(thorough, tmp_path, monkeypatch):
    gpu_tool_cases.install(tools(tmp_path), monkeypatch, "compute-sanitizer", "memcheck.log")
    before = set(thorough.folder.iterdir())
    thorough.sanitize(facts_of(kernel="scale_kernel"))
    left = {path.name for path in set(thorough.folder.iterdir()) - before}
    assert all(name.startswith("gpu-") for name in left), left  # the lock's files


def test_a_closed_evaluator_gives_no_verdict(thorough):
    thorough.close()
    found, _ = walk(thorough.stages(), facts_of())
    assert found.status is EvalStatus.HARNESS_ERROR
    assert "the evaluator is closed" in found.reason


def test_the_interpreter_platform_says_that_it_has_no_tools():
    settings = {**SETTINGS, "baseline": "none", "workers": 1, "cache": False, "thorough": True}
    with GpuEvaluator(SMALL, settings) as evaluator:
        found = one(evaluator, KernelSource(text=SEED))
    assert found.status.passed, found.reason
    assert [stage.name for stage in found.stages][-2:] == ["sanitize", "counters"]
    assert "no sanitizers on the interpreter platform" in found.explain
    assert found.profile.counters_reason == "there are none on the interpreter platform"


def test_a_verdict_kept_from_a_plain_run_is_not_used_in_thorough_mode(tmp_path):
    settings = {**SETTINGS, "cache_dir": str(tmp_path), "cache": True}
    with GpuEvaluator(SMALL, settings) as plain, GpuEvaluator(SMALL, {**settings, "thorough": True}) as thorough:
        source = KernelSource(text=SEED)
        assert plain._cache.path(source) != thorough._cache.path(source)


@pytest.fixture(scope="module")
def on_cuda():
    settings = {"baseline": "seed", "timing": "screen", "timeout_s": 20.0, "cache": False, "thorough": True}
    with GpuEvaluator(TASK, settings) as evaluator:
        yield evaluator


def needs(tool):
    try:
        find_tool(tool)
    except ToolError as error:
        pytest.skip(str(error))


@pytest.mark.gpu
@pytest.mark.slow
def test_on_a_gpu_a_right_kernel_passes_with_counters_or_the_reason_why_there_are_none(on_cuda):
    needs("compute-sanitizer")
    found = one(on_cuda, KernelSource(text=SEED))
    assert found.status.passed, found.reason
    assert "memcheck, initcheck, racecheck found nothing at one, prime, even" in found.explain
    if found.profile.counters_reason:
        assert "ncu" in found.profile.counters_reason or "counters" in found.profile.counters_reason
        assert found.profile.counters == ()
        return
    (counters,) = found.profile.counters
    assert counters.kernel == "sum_kernel"
    assert counters.grid.startswith("(4096,")
    assert 0 < counters.dram_pct <= 100
    assert 0 < counters.occupancy_pct <= 100


@pytest.mark.gpu
@pytest.mark.slow
def test_on_a_gpu_a_read_that_is_thrown_away_is_out_of_bounds(on_cuda):
    needs("compute-sanitizer")
    ((_, found),) = on_cuda.evaluate(jobs([READS_ON_DISCARDS]))
    assert found.status is EvalStatus.OUT_OF_BOUNDS, found.reason
    assert found.reason.startswith("memcheck: sum_kernel at candidate.py:")
    assert [stage.name for stage in found.stages][-1] == "sanitize"
