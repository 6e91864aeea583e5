from __future__ import annotations

import pytest

from evaluator.gpu_tools import Finished
from evaluator.ncu import CountersReport, measure_counters, ncu_command, number, read_counters
from evaluator.types import KernelCounters
from tests.evaluator import gpu_tool_cases
from tests.evaluator.gpu_tool_cases import GOLDEN


def report(name, code=0, words=""):
    return read_counters(Finished(code, (GOLDEN / name).read_text(), words))


def test_a_kernel_has_the_counters_of_its_longest_launch():
    first, _ = report("ncu.csv").kernels
    assert first == KernelCounters(
        kernel="softmax_kernel",
        grid="(8192, 1, 1)",
        block="(256, 1, 1)",
        ms=0.070432,
        dram_pct=86.9,
        dram_bytes=268_512_000,
        sm_pct=31.1,
        l2_hit_pct=49.8,
        occupancy_pct=78.02,
        stalls={"long_scoreboard": 0.75, "barrier": 0.1, "short_scoreboard": 0.075},
    )


def test_a_line_about_a_kernel_leaves_out_what_was_not_counted():
    first, second = report("ncu.csv").kernels
    assert first.line().startswith(
        "softmax_kernel: DRAM 87 %, SM 31 %, L2 hits 50 %, occupancy 78 %, warps wait for long"
    )
    assert "warps wait" not in second.line()


def test_counters_that_the_gpu_lacks_are_none():
    _, second = report("ncu.csv").kernels
    assert second.kernel == "finish_kernel"
    assert second.dram_bytes is None
    assert second.l2_hit_pct == 88.0
    assert second.stalls == {}


def test_forbidden_counters_say_how_to_allow_them():
    found = report("ncu_forbidden.log")
    assert found.kernels == ()
    assert "ERR_NVGPUCTRPERM" in found.reason
    assert "NVreg_RestrictProfilingToAdminUsers=0" in found.reason


def test_a_driver_that_fails_is_quoted():
    found = report("ncu_nothing.log", code=1, words="RuntimeError: boom")
    assert "The application returned an error code (1)." in found.reason
    assert "No kernels were profiled." in found.reason
    assert "RuntimeError: boom" in found.reason


@pytest.mark.parametrize("log", ["", "nonsense", '"ID","Kernel Name"\n', "==PROF== Connected\n"])
def test_a_log_without_a_table_has_a_reason(log):
    found = read_counters(Finished(11, log, ""))
    assert found.kernels == ()
    assert "code 11" in found.reason


def test_a_row_that_was_cut_off_is_left_out():
    log = (GOLDEN / "ncu.csv").read_text().strip()
    cut = log[: log.rindex('"2","4242"') + 40]
    assert [kernel.kernel for kernel in read_counters(Finished(0, cut, "")).kernels] == ["softmax_kernel"]


@pytest.mark.parametrize(
    ("text", "value"),
    [("1,234.5", 1234.5), ("88.00 (88.0; 88.0)", 88.0), ("4.0e-05", 4e-5), ("n/a", None), ("", None)],
)
def test_numbers_are_read_as_ncu_prints_them(text, value):
    assert number(text) == value


@pytest.mark.parametrize(("unit", "ms"), [("nsecond", 2e-6), ("ns", 2e-6), ("usecond", 2e-3), ("us", 2e-3), ("ms", 2)])
def test_times_are_milliseconds_whatever_their_unit(unit, ms):
    log = f'"ID","Kernel Name","gpu__time_duration.sum"\n"","","{unit}"\n"0","k","2"\n'
    assert read_counters(Finished(0, log, "")).kernels[0].ms == pytest.approx(ms)


def test_the_tool_is_asked_for_the_candidates_kernels_and_leaves_clocks_alone(tmp_path, monkeypatch):
    gpu_tool_cases.install(tmp_path, monkeypatch, "ncu", "ncu.csv")
    command = ncu_command(["python", "-m", "x"], ["a_kernel", "b_kernel"], tmp_path / "log")
    shown = " ".join(command)
    assert "--clock-control none" in shown
    assert "--kernel-name regex:^(a_kernel|b_kernel)$" in shown
    assert shown.endswith("-- python -m x")


def test_a_run_from_command_to_counters(tmp_path, monkeypatch):
    gpu_tool_cases.install(tmp_path, monkeypatch, "ncu", "ncu.csv")
    found = measure_counters(
        ["true"], ["softmax_kernel"], tmp_path, tmp_path, gpu_tool_cases.environment(tmp_path), 30.0
    )
    assert [kernel.kernel for kernel in found.kernels] == ["softmax_kernel", "finish_kernel"]
    assert CountersReport.model_validate_json(found.model_dump_json()) == found


def test_a_machine_without_ncu_has_a_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    gpu_tool_cases.hide_toolkit(monkeypatch)
    assert "ncu is not installed" in measure_counters(["true"], ["k"], tmp_path, tmp_path, {}).reason


@pytest.mark.gpu
@pytest.mark.slow
def test_the_real_tool_counts_or_says_why_not(tmp_path):
    driver, variables = gpu_tool_cases.on_gpu(tmp_path, "ncu", "nothing")
    found = measure_counters(driver, ["scale_kernel", "sum_kernel"], tmp_path, tmp_path, variables)
    if found.reason:
        assert "ERR_NVGPUCTRPERM" in found.reason
        return
    counters = {kernel.kernel: kernel for kernel in found.kernels}
    assert set(counters) == {"scale_kernel", "sum_kernel"}
    scale = counters["scale_kernel"]
    assert 0 < scale.ms < 10
    assert 0 < scale.dram_pct <= 100
    assert 0 < scale.occupancy_pct <= 100
    assert scale.dram_bytes > 100_000
    assert len(scale.stalls) == 3
