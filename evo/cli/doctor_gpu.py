"""What `kernevo doctor` says about measuring on this machine's GPUs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from evaluator.errors import EnvironmentUnusableError
from evo.cli.check import Check

PROBE_SECONDS = 180.0
PARAMETERS = Path("/proc/driver/nvidia/params")
TOOLS = {
    "ncu": "hardware counters in `thorough` mode",
    "compute-sanitizer": "memory and race checks in `thorough` mode",
}


class Answer(NamedTuple):
    """How the probe ended, and what it printed."""

    code: int | None
    """None when it was still running at the time limit."""
    out: str
    errors: str


def gpu_checks() -> list[Check]:
    """The probe's findings; where it found a GPU, also what lies beside it."""
    answer = ask_probe()
    found = _findings(answer.out)
    if not found:
        lines = answer.errors.strip().splitlines()
        return [Check("import torch", "fail", lines[-1] if lines else _ending(answer), "reinstall torch")]
    if answer.code != 0:
        fix = "nvidia-smi says whether the driver works; evaluator.type: cpu needs none"
        found.append(Check("GPU probe", "warn", _ending(answer), fix))
    if any(re.fullmatch(r"GPU \d+", check.name) for check in found):
        found += [_locks(), *(_tool(name, use) for name, use in TOOLS.items()), counters()]
    return found


def ask_probe() -> Answer:
    """Run the probe in a process of its own: a broken driver may kill or hang it."""
    command = [sys.executable, "-m", "evaluator.gpu_probe"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    except subprocess.TimeoutExpired as late:
        return Answer(None, _text(late.stdout), _text(late.stderr))
    return Answer(done.returncode, done.stdout, done.stderr)


def _text(raw: bytes | str | None) -> str:
    return raw.decode(errors="replace") if isinstance(raw, bytes) else raw or ""


def _findings(out: str) -> list[Check]:
    """Lines that are findings; libraries print others, and the last one may be torn."""
    found = []
    for line in out.splitlines():
        try:
            found.append(Check(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found


def _ending(answer: Answer) -> str:
    if answer.code is None:
        return f"was still running after {PROBE_SECONDS:.0f} s"
    last = next(reversed(answer.errors.strip().splitlines()), "")
    how = f"ended by {signal.Signals(-answer.code).name}" if answer.code < 0 else f"ended with code {answer.code}"
    return f"{how}: {last}" if last else how


def _locks() -> Check:
    from evaluator.gpu_lock import GpuLock, default_folder

    try:
        with GpuLock("kernevo doctor").exclusive():
            return Check("GPU locks", "ok", f"{default_folder()}: campaigns of this user never time at once")
    except EnvironmentUnusableError as error:
        return Check("GPU locks", "warn", error.message, error.hint)
    except OSError as error:
        return Check("GPU locks", "warn", f"{default_folder()}: {error.strerror}", "make the folder writable")


def _tool(name: str, use: str) -> Check:
    from evaluator.gpu_tools import ToolError, find_tool

    try:
        path = find_tool(name)
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=True)
    except ToolError as error:
        return Check(name, "info", f"no {use}: {error}")
    except (OSError, subprocess.SubprocessError) as error:
        return Check(name, "warn", f"{path} does not run: {error}", "reinstall the CUDA toolkit")
    version = re.search(r"\d+(\.\d+)+", done.stdout)
    return Check(name, "ok", f"{version[0] if version else 'unknown version'}, {path}")


def counters() -> Check:
    """Whether ncu may read hardware counters, from the driver's parameters; trying it would take half a minute."""
    name = "hardware counters"
    try:
        text = PARAMETERS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    setting = re.search(r"^RmProfilingAdminOnly:\s*(\d+)", text, re.MULTILINE)
    if setting is None:
        who = "root" if os.geteuid() == 0 else "not root"
        return Check(name, "info", f"unknown: {PARAMETERS} does not say; you are {who}, and root may read them")
    if setting[1] == "0":
        return Check(name, "ok", "readable by everybody")
    if os.geteuid() == 0:
        return Check(name, "info", "for administrators only: you are root; a container needs SYS_ADMIN as well")
    return Check(
        name,
        "info",
        "for administrators only: load the driver with NVreg_RestrictProfilingToAdminUsers=0, or run as root",
    )
