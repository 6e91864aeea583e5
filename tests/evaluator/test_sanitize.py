from __future__ import annotations

import pytest

from evaluator.gpu_tools import Finished
from evaluator.sanitize import SanitizerReport, first_fault, read_findings, sanitize, sanitizer_command
from evaluator.types import EvalStatus
from tests.evaluator import gpu_tool_cases
from tests.evaluator.gpu_tool_cases import GOLDEN

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
NO_RACES = "========= COMPUTE-SANITIZER\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"


def report(tool, name):
    return read_findings(tool, Finished(0, (GOLDEN / name).read_text(), ""))


def test_an_access_out_of_bounds_is_told_once_with_its_place():
    found = report("memcheck", "memcheck.log")
    assert found.reason == ""
    assert [finding.kernel for finding in found.findings] == [
        "scale_kernel",
        "at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>",
    ]
    first = found.findings[0]
    assert first.status is EvalStatus.OUT_OF_BOUNDS
    assert first.where == "candidate.py:21"
    assert first.size == 16
    assert first.address == 0x7F2E5FA08000
    assert first.detail.endswith("and is 1 bytes after the nearest allocation at 0x7f2e5fa00000 of size 32,768 bytes")
    assert first.line().startswith("scale_kernel at candidate.py:21: Invalid __global__ write of size 16 bytes (is out")


def test_an_older_tools_words_are_understood():
    found = report("memcheck", "memcheck_2022.log")
    first = found.findings[0]
    assert (first.kernel, first.where) == ("fused_kernel", "/home/user/candidate.py:175")
    assert first.address == 0x763995F9F000


def test_an_access_whose_kind_the_tool_does_not_know_is_no_evidence():
    found = report("memcheck", "memcheck_2022.log")
    assert found.findings[1].benign
    assert first_fault(found, {"matmul_kernel"}) is None


def test_a_read_of_uninitialised_memory_is_named():
    (finding,) = report("initcheck", "initcheck.log").findings
    assert finding.status is EvalStatus.UNINITIALISED
    assert finding.kernel == "scan_kernel"
    assert finding.where == "candidate.py:40"
    assert finding.address == 0x7F3C7EC000FC


def test_a_race_names_both_accesses():
    found = report("racecheck", "racecheck.log")
    first = found.findings[0]
    assert first.status is EvalStatus.RACE
    assert first.what == "race between a write and a read of shared memory"
    assert first.where == "candidate.py:41"
    assert first.detail == "the other at candidate.py:51"
    assert first_fault(found, {"sum_kernel"}) == first


def test_threads_that_store_copies_of_one_value_are_no_race():
    found = report("racecheck", "racecheck.log")
    assert found.findings[1].kernel == "norm_kernel"
    assert found.findings[1].benign
    assert first_fault(found, {"norm_kernel"}) is None


def test_two_different_stores_to_one_place_are_a_race():
    log = (
        (GOLDEN / "racecheck.log")
        .read_text()
        .replace("and Write access at norm_kernel+0x1a0", "and Write access at norm_kernel+0x1b0")
    )
    found = read_findings("racecheck", Finished(0, log, ""))
    assert first_fault(found, {"norm_kernel"}) is not None


def test_faults_of_other_kernels_are_not_the_candidates():
    assert first_fault(report("memcheck", "memcheck.log"), {"another_kernel"}) is None


@pytest.mark.parametrize(("tool", "log"), [("memcheck", CLEAN), ("initcheck", CLEAN), ("racecheck", NO_RACES)])
def test_a_clean_run_finds_nothing(tool, log):
    assert read_findings(tool, Finished(0, log, "")) == SanitizerReport(tool=tool)


@pytest.mark.parametrize(
    ("log", "words", "why"),
    [
        ("", "", "code 9"),
        ("========= COMPUTE-SANITIZER\n", "RuntimeError: boom", "RuntimeError: boom"),
        ("========= Error: No attachable process found.\n", "", "No attachable process found"),
        (CLEAN.replace("ERROR SUMMARY: 0 errors", "cut"), "", "did not run to its end"),
    ],
)
def test_a_run_without_a_summary_is_no_clean_bill(log, words, why):
    found = read_findings("memcheck", Finished(9, log, words))
    assert found.findings == ()
    assert why in found.reason


def test_a_driver_that_did_not_get_to_its_end_is_no_clean_bill():
    found = read_findings("memcheck", Finished(1, CLEAN, "RuntimeError: boom"))
    assert "code 1" in found.reason
    assert "RuntimeError: boom" in found.reason


def test_errors_that_are_not_understood_are_no_clean_bill():
    log = "========= COMPUTE-SANITIZER\n========= Something new of 4 bytes\n========= ERROR SUMMARY: 1 error\n"
    assert "Something new of 4 bytes" in read_findings("memcheck", Finished(0, log, "")).reason


def test_what_the_driver_prints_is_not_taken_for_the_tools_words(tmp_path, monkeypatch):
    gpu_tool_cases.install(tmp_path, monkeypatch, "compute-sanitizer", "memcheck.log")
    driver = ["sh", "-c", "printf '========= ERROR SUMMARY: 0 errors\\n'"]
    found = sanitize("memcheck", driver, tmp_path, tmp_path, gpu_tool_cases.environment(tmp_path), 30.0)
    assert first_fault(found, {"scale_kernel"}).status is EvalStatus.OUT_OF_BOUNDS


def test_the_driver_runs_without_torchs_caching_allocator(tmp_path, monkeypatch):
    gpu_tool_cases.install(tmp_path, monkeypatch, "compute-sanitizer", "initcheck.log")
    driver = ["sh", "-c", "echo $PYTORCH_NO_CUDA_MEMORY_CACHING > seen"]
    sanitize("initcheck", driver, tmp_path, tmp_path, gpu_tool_cases.environment(tmp_path), 30.0)
    assert (tmp_path / "seen").read_text() == "1\n"


@pytest.mark.parametrize("tool", ["memcheck", "initcheck", "racecheck"])
def test_the_command_ends_with_the_driver(tmp_path, monkeypatch, tool):
    gpu_tool_cases.install(tmp_path, monkeypatch, "compute-sanitizer", "memcheck.log")
    command = sanitizer_command(tool, ["python", "-m", "x"], tmp_path / "log")
    assert command[command.index("--tool") + 1] == tool
    assert command[-4:] == ["--", "python", "-m", "x"]


def test_a_machine_without_the_sanitizer_has_a_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    gpu_tool_cases.hide_toolkit(monkeypatch)
    assert "compute-sanitizer is not installed" in sanitize("memcheck", ["true"], tmp_path, tmp_path, {}).reason


def test_a_report_is_plain_data():
    found = report("memcheck", "memcheck.log")
    assert SanitizerReport.model_validate_json(found.model_dump_json()) == found


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "kind", "status"),
    [
        ("memcheck", "nothing", None),
        ("memcheck", "beyond", EvalStatus.OUT_OF_BOUNDS),
        ("initcheck", "nothing", None),
        ("initcheck", "uninitialised", EvalStatus.UNINITIALISED),
        ("racecheck", "nothing", None),
    ],
)
def test_the_real_tool_finds_what_is_wrong_and_nothing_else(tmp_path, tool, kind, status):
    driver, variables = gpu_tool_cases.on_gpu(tmp_path, "compute-sanitizer", kind)
    found = sanitize(tool, driver, tmp_path, tmp_path, variables)
    fault = first_fault(found, {"scale_kernel", "sum_kernel"})
    assert (fault.status if fault else None) is status, found.reason
    # A driver whose access was refused may die of it.
    assert found.reason == "" or (fault is not None and found.reason.startswith("the driver ended"))
    if fault is not None:
        assert "driver.py:" in fault.where
