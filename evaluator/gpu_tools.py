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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

OUTPUT_BYTES = 64 << 20
_SHOWN = 2000
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
    command: Sequence[str], log: Path, folder: Path, environment: Mapping[str, str], seconds: float
) -> Finished:
    """Run `command`, which writes its log to `log`, with `folder` as working folder and for printed output.

    The whole process group is killed after `seconds`, and no file may grow beyond 64 MiB. Raises `ToolError` at the
    time limit, or when the tool cannot be started.
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
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise ToolError(f"{name} was still running after {seconds:.0f} s") from None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return Finished(code, _text(log), _text(printed)[-_SHOWN:].strip())


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return ""
