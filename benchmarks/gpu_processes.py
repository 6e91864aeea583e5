"""One set of processes for several gpu evaluators: starting them takes longer than judging some tasks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evaluator.gpu_machine import find
from evaluator.gpu_processes import Processes


@contextmanager
def shared_processes(settings: dict[str, Any], at_once: int) -> Iterator[None]:
    """Inside, `settings` let evaluators fork from the same processes and share the GPU's memory among `at_once`."""
    if settings["type"] != "gpu" or settings.get("platform", "cuda") != "cuda":
        yield
        return
    with tempfile.TemporaryDirectory(prefix="kernevo-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # workers of another user pass through
        machine = find("cuda", 0, folder, "h200", allow_busy=True)
        processes = Processes.start(folder, machine.platform, machine.worker_environment)
        settings |= {"processes": processes, "device": 0, "memory_share": 1 / at_once}
        try:
            yield
        finally:
            processes.close()
