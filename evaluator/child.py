"""Runs a program that runs a reference nobody vouches for: no GPU, none of our secrets, bounded time and memory.

This separates, it does not confine: the program has the user's files and network (`evaluator.foreign` confines).
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress

from evaluator.errors import TaskError
from evaluator.sandbox import import_path

TIMEOUT_S = 300.0
MEMORY_BYTES = 16 << 30
"""Private memory of such a program, torch included."""
_KEPT = ("PATH", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "OMP_NUM_THREADS")


def run(program: Sequence[str], given: bytes, origin: str) -> bytes:
    """What Python prints on stdout, run with these arguments and `given` on stdin.

    Raises `TaskError`, which names `origin`, where it takes too long or ends with another code than 0.
    """
    with tempfile.TemporaryDirectory(prefix="kernevo-task-") as folder:
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        own = {"CUDA_VISIBLE_DEVICES": "", "HOME": folder, "TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        own["TRITON_INTERPRET"] = "1"  # a reference that is a Triton kernel needs no GPU then
        process = subprocess.Popen(
            [sys.executable, "-P", *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**kept, **own, "PYTHONPATH": os.pathsep.join(import_path())},
            cwd=folder,
            start_new_session=True,
        )
        try:
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
            answer, _ = process.communicate(given, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise TaskError(f"{origin}: running it took longer than {TIMEOUT_S:.0f} s", "use smaller shapes") from None
        finally:
            _end(process)
    if process.returncode != 0 or not answer:
        raise TaskError(f"{origin}: running it {_ending(process.returncode)}", "use smaller shapes")
    return answer


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it and everything it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    name = signal.Signals(-code).name
    return f"was ended by {name}" + (" (too little memory?)" if name == "SIGKILL" else "")
