"""Several GPUs of one machine behind one evaluator: each candidate goes to the GPU with the least to do."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from evaluator.backends.gpu import GpuEvaluator, default_workers
from evaluator.backends.local import LocalEvaluator
from evaluator.duplicates import Duplicates
from evaluator.types import Evaluation, EvaluationJob, KernelSource, Task

ALL = "all"
"""Setting of `device`: every GPU that CUDA_VISIBLE_DEVICES shows."""


class GpuFleet(LocalEvaluator):
    """One `GpuEvaluator` for each GPU; see `evaluator.protocol.Evaluator` for the contract.

    Settings: those of `GpuEvaluator`, with `device` a list of indices or `all`; `workers` and memory are for each
    GPU. Every GPU measures a baseline of its own, so that speedups compare what ran on one GPU. GPUs are looked for
    by the first `evaluate`, which raises like `GpuEvaluator`'s: before any candidate is run.
    """

    name = GpuEvaluator.name
    revision = GpuEvaluator.revision

    def __init__(self, task: Task, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        GpuEvaluator(task, {**settings, "device": 0, "cache": False})  # says now what is wrong with task or settings
        # Each GPU's evaluator keeps its own verdicts.
        super().__init__(task, {**settings, "cache": False}, str(settings.get("target", "h200")))
        self._evaluators: list[GpuEvaluator] = []
        self._judging: list[int] = []
        self._choosing = threading.Lock()
        self._prepared = False

    def evaluate(self, jobs: Iterable[EvaluationJob]) -> Iterator[tuple[EvaluationJob, Evaluation]]:
        """Judge `jobs`, several on each GPU at once, yielding in submission order."""
        self._open()
        yield from super().evaluate(jobs)

    def retime(self, jobs: Iterable[EvaluationJob]) -> Iterator[tuple[EvaluationJob, Evaluation]]:
        """Like `GpuEvaluator.retime`; speedups stay over the baseline of the GPU that timed the candidate."""
        self._open()
        with ExitStack() as stack:
            for evaluator in self._evaluators:
                stack.enter_context(evaluator.again())
            yield from self.evaluate(jobs)

    def _open(self) -> None:
        """Find the GPUs, without using them."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the evaluator is closed")
            if self._evaluators:
                return
            devices = find_devices(self._settings)
            each = int(self._settings.get("workers") or default_workers(len(devices)))
            settings = {**self._settings, "workers": each}
            known = Duplicates(self._task)
            self._evaluators = [GpuEvaluator(self._task, {**settings, "device": index}, known) for index in devices]
            self._judging = [0] * len(devices)
            self._workers = each * len(devices)

    def _prepare(self) -> None:
        """Prepare all GPUs at the same time; of several failures the first GPU's is raised."""
        if self._prepared:
            return
        with ThreadPoolExecutor(len(self._evaluators), thread_name_prefix="kernevo-prepare") as pool:
            for done in [pool.submit(evaluator._prepare) for evaluator in self._evaluators]:
                done.result()
        self._prepared = True

    def _judge(self, source: KernelSource) -> Evaluation:
        with self._choosing:
            chosen = self._judging.index(min(self._judging))
            self._judging[chosen] += 1
        try:
            return self._evaluators[chosen]._judge_and_keep(source)
        finally:
            with self._choosing:
                self._judging[chosen] -= 1

    def _cached(self, source: KernelSource) -> Evaluation | None:
        """A verdict that any of the GPUs has given."""
        return next((found for one in self._evaluators if (found := one._cached(source)) is not None), None)

    def _refused(self, source: KernelSource) -> Evaluation | None:
        return self._evaluators[0]._refused(source)

    def _release(self) -> None:
        for evaluator in self._evaluators:
            evaluator.close()


def find_devices(settings: Mapping[str, Any]) -> list[int]:
    """Indices of the GPUs that the settings mean; [0] where there is none, whose evaluator says what is missing."""
    wanted = settings.get("device", ALL)
    if wanted != ALL:
        return [wanted] if isinstance(wanted, int) else list(wanted)
    if settings.get("platform", "cuda") != "cuda":
        return [0]
    import torch

    return list(range(torch.cuda.device_count())) or [0]
