"""The processes that gpu evaluators fork their jobs from: for workers, the compiler and the interpreter.

Each imports torch, which takes seconds. Evaluators of many tasks on one GPU can use the same ones, side by side too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from evaluator.gpu_host import Nursery
from evaluator.worker_host import WorkerHost


@dataclass(frozen=True)
class Processes:
    """One of each. Thread-safe."""

    nursery: Nursery
    compiler: WorkerHost
    interpreter: WorkerHost

    @classmethod
    def start(cls, folder: Path, platform: str, extra: Mapping[str, str]) -> Self:
        """Start them without waiting; `extra` is the environment of workers, `folder` must outlive them."""
        hosts = WorkerHost(folder, interpret=False), WorkerHost(folder, interpret=True)
        made = cls(Nursery(folder, platform, extra), *hosts)
        for host in hosts:
            host.start()
        return made

    def close(self) -> None:
        """End them and everything that was forked from them."""
        for host in (self.compiler, self.interpreter):
            host.close()
        self.nursery.close()
