"""A small Ray, and an evaluator for its actors that needs no Triton."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evaluator.backends.local import LocalEvaluator
from evaluator.errors import TaskError
from evaluator.testing import SEED
from evaluator.types import EvalStatus, Evaluation, KernelSource, Timing

KILLS = "# kills its actor"
BREAKS = "# breaks its judge"


@contextmanager
def folder_of_ray() -> Iterator[str]:
    """A folder with a name so short that Ray's sockets fit below it."""
    folder = tempfile.mkdtemp(prefix="kray-", dir="/tmp")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def small_ray() -> Iterator[None]:
    """Two CPUs of this machine."""
    import ray

    with folder_of_ray() as folder:
        ray.init(
            num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=80 << 20, _temp_dir=folder
        )
        try:
            yield
        finally:
            ray.shutdown()


class Scripted(LocalEvaluator):
    """Judges by what a source says in comments; every verdict says which process gave it."""

    name = "cpu"
    revision = 1

    def __init__(self, task, settings, duplicates):
        super().__init__(task, settings, "h200")

    def _prepare(self):
        if "tells nothing" in self._task.description:
            raise TaskError("a constant passes", "vary the inputs")

    def _judge(self, source):
        """A pass, or what the comments ask for."""
        for line in source.text.splitlines():
            if line.startswith("# noted in "):
                with Path(line.removeprefix("# noted in ")).open("a") as notes:
                    notes.write(f"{os.getpid()}\n")
        if KILLS in source.text:
            os.kill(os.getpid(), signal.SIGKILL)
        if BREAKS in source.text:
            raise RuntimeError("the device is gone")
        return Evaluation(
            source_sha=source.sha,
            task=self._task.name,
            evaluator="cpu",
            status=EvalStatus.PASSED,
            reason=str(os.getpid()),
            timings={"tall": Timing(kind="modelled", median_ms=1.0)},
        )

    def _release(self):
        pass


def numbered(count: int, *comments: str) -> list[KernelSource]:
    lines = "\n".join(comments)
    return [KernelSource(text=f"{SEED}\n{lines}\n# {index}\n") for index in range(count)]
