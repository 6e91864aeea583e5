from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from evaluator.errors import HarnessError
from evaluator.gpu_tools import ToolError, find_tool, run_tool
from tests.evaluator import gpu_tool_cases


def run(tmp_path, program, seconds=60.0):
    return run_tool(
        [sys.executable, "-c", program], tmp_path / "tool.log", tmp_path, gpu_tool_cases.environment(tmp_path), seconds
    )


def test_what_the_tool_wrote_and_what_the_driver_printed_are_kept_apart(tmp_path):
    finished = run(tmp_path, "open('tool.log', 'w').write('found'); print('hello'); raise SystemExit(3)")
    assert finished == (3, "found", "hello")


def test_a_tool_that_writes_nothing_has_an_empty_log(tmp_path):
    assert run(tmp_path, "pass").log == ""


def test_only_the_end_of_a_long_print_is_kept(tmp_path):
    words = run(tmp_path, "print('x' * 100_000 + 'end')").last_words
    assert words.endswith("end")
    assert len(words) < 3000


def test_a_tool_that_hangs_is_killed_with_everything_it_started(tmp_path):
    command = ["sh", "-c", "sleep 600 & echo $! > child; wait"]
    with pytest.raises(ToolError, match="still running after 2 s"):
        run_tool(command, tmp_path / "log", tmp_path, gpu_tool_cases.environment(tmp_path), 2.0)
    child = int((tmp_path / "child").read_text())
    while state(child) not in ("gone", "Z"):  # a signal takes effect when its receiver next runs
        os.sched_yield()


def test_a_tool_is_killed_when_its_evaluator_is_closed(tmp_path):
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(HarnessError, match="sleep was stopped"):
        run_tool(["sleep", "600"], tmp_path / "log", tmp_path, gpu_tool_cases.environment(tmp_path), 600.0, stopped)


def state(pid):
    """One letter as `ps` shows it, or `gone`."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", maxsplit=1)[1].split()[0]
    except FileNotFoundError:
        return "gone"


def test_a_tool_that_cannot_start_is_an_error(tmp_path):
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    with pytest.raises(ToolError, match="broken does not start"):
        run_tool([str(broken)], tmp_path / "log", tmp_path, {}, 10.0)


def test_a_file_cannot_grow_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr("evaluator.gpu_tools.OUTPUT_BYTES", 1 << 16)
    run(tmp_path, "import time\nwhile True: print('x' * 1000, flush=True)")
    assert (tmp_path / "tool.log.printed").stat().st_size <= 1 << 16


def test_a_missing_tool_says_where_it_comes_from(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    gpu_tool_cases.hide_toolkit(monkeypatch)
    with pytest.raises(ToolError, match="ncu is not installed"):
        find_tool("ncu")


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH"])
def test_a_tool_in_the_toolkits_folder_is_found(tmp_path, monkeypatch, variable):
    gpu_tool_cases.hide_toolkit(monkeypatch)
    (tmp_path / "bin").mkdir()
    gpu_tool_cases.install(tmp_path / "bin", monkeypatch, "ncu", "ncu.csv")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv(variable, str(tmp_path))
    assert find_tool("ncu") == str(tmp_path / "bin" / "ncu")
