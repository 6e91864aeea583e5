"""Stand-ins for NVIDIA's tools: they write a given log where they are told to and run the driver."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from evaluator.gpu_tools import ToolError, find_tool

GOLDEN = Path(__file__).parents[1] / "golden" / "gpu_tools"

DRIVER = """
import sys
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, out, n, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n if MASKED else offsets >= 0
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) * 2, mask=mask)


@triton.jit
def sum_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(x + offsets, mask=offsets < n, other=0.0)))


kind = sys.argv[1]
n = 100_000
x = torch.empty(n, device="cuda") if kind == "uninitialised" else torch.rand(n, device="cuda")
out = torch.zeros(n, device="cuda")
torch.cuda.profiler.start()
scale_kernel[(triton.cdiv(n, 1024),)](x, out, n, 1024, kind != "beyond")
sum_kernel[(1,)](x, out, 4096, 4096)
torch.cuda.synchronize()
"""
"""Two Triton kernels; its argument says what is wrong with them: nothing, `beyond`, `uninitialised`."""

_TOOL = """#!/bin/sh
while [ $# -gt 0 ]; do
    case "$1" in
        --log-file) cp {log} "$2"; shift ;;
        --) shift; exec "$@" ;;
    esac
    shift
done
exit {code}
"""


def install(folder: Path, monkeypatch, name: str, log: str, code: int = 0) -> None:
    """Put a tool of this name on PATH, and nothing else of the CUDA toolkit."""
    script = folder / name
    script.write_text(_TOOL.format(log=GOLDEN / log, code=code))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    hide_toolkit(monkeypatch)


def install_broken(folder: Path, monkeypatch, name: str) -> None:
    """Put a tool of this name on PATH that dies without a word."""
    install(folder, monkeypatch, name, "unused")
    (folder / name).write_text("#!/bin/sh\nkill -9 $$\n")


def hide_toolkit(monkeypatch) -> None:
    """As on a machine without the CUDA toolkit's folder."""
    monkeypatch.setattr("evaluator.gpu_tools.TOOLKITS", ())
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)


def on_gpu(folder: Path, tool: str, kind: str) -> tuple[list[str], dict[str, str]]:
    """A driver and its environment for the real tool; skips where there is no GPU or no such tool."""

    try:
        find_tool(tool)
    except ToolError as error:
        pytest.skip(str(error))
    script = folder / "driver.py"
    script.write_text(DRIVER)
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH") if name in os.environ}
    return [sys.executable, str(script), kind], {**kept, "HOME": str(folder), "TMPDIR": str(folder)}


def environment(folder: Path) -> dict[str, str]:
    """What a caller gives a tool."""
    return {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
