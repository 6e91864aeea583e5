"""Runs NVIDIA's command-line tools on a driver script, within limits.

The tools run in the judge's trust; what they run under them does not. So a tool writes its findings to a file that
only it is told of, and whatever the driver prints is kept apart and shown to people only.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from evaluator.errors import HarnessError

OUTPUT_BYTES = 64 << 20
_SHOWN = 2000
_GLANCE_S = 0.25
"""How long a closed evaluator waits for a tool to be killed, at most."""
TOOLKITS = ("/usr/local/cuda",)
"""Where installers put the toolkit."""
_CUDA_HOMES = ("CUDA_HOME", "CUDA_PATH")


class ToolError(Exception):
    """A tool is missing, or ended without a result; the message says why and what helps."""


class Finished(NamedTuple):
    """A tool's process after it has ended."""

    code: int
    log: str
    """What the tool wrote."""
    last_words: str
    """The end of what the driver under it printed."""


def find_tool(name: str) -> str:
    """Path of a tool of the CUDA toolkit: on PATH, or in the toolkit's folder. Raises `ToolError`."""
    homes = [os.environ[variable] for variable in _CUDA_HOMES if variable in os.environ]
    folders = [os.environ.get("PATH", ""), *(str(Path(home) / "bin") for home in (*homes, *TOOLKITS))]
    found = shutil.which(name, path=os.pathsep.join(folders))
    if found:
        return found
    raise ToolError(f"{name} is not installed (it comes with the CUDA toolkit; put its bin folder on PATH)")


def run_tool(
    command: Sequence[str],
    log: Path,
    folder: Path,
    environment: Mapping[str, str],
    seconds: float,
    stopped: threading.Event | None = None,
) -> Finished:
    """Run `command`, which writes its log to `log`, with `folder` as working folder and for printed output.

    The whole process group is killed after `seconds`, and no file may grow beyond 64 MiB. Raises `ToolError` at the
    time limit, or when the tool cannot be started, and `HarnessError` once `stopped` is set.
    """
    printed = folder / f"{log.name}.printed"
    name = Path(command[0]).name
    with printed.open("wb") as output:
        try:
            process = subprocess.Popen(
                list(command),
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise ToolError(f"{name} does not start: {error.strerror}") from None
        with suppress(ProcessLookupError):  # it may be done already
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (OUTPUT_BYTES, OUTPUT_BYTES))
        try:
            code = _wait(process, name, seconds, stopped or threading.Event())
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return Finished(code, _text(log), _text(printed)[-_SHOWN:].strip())


def _wait(process: subprocess.Popen[bytes], name: str, seconds: float, stopped: threading.Event) -> int:
    deadline = time.monotonic() + seconds
    while not stopped.is_set():
        left = deadline - time.monotonic()
        try:
            return process.wait(timeout=min(_GLANCE_S, max(left, 0.0)))
        except subprocess.TimeoutExpired:
            if left <= 0:
                raise ToolError(f"{name} was still running after {seconds:.0f} s") from None
    raise HarnessError(f"{name} was stopped: the evaluator is closed")


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return ""
