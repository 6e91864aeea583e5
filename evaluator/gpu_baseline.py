"""What candidates are compared with, in a process of its own: the reference (eager or compiled) or the task's seed.

The baseline is timed beside every candidate, sample block by sample block, so that clocks, heat and power meet both
alike. Its process is trusted and lives as long as the evaluator.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any

from evaluator.errors import HarnessError, TaskError
from evaluator.gpu_cases import Carved, DeviceCases
from evaluator.gpu_correct import Bench, put_inputs
from evaluator.gpu_host import WorkerError, WorkerPool
from evaluator.gpu_memory import Arena, Layout, settle
from evaluator.samples import Block
from evaluator.summary import summarise
from evaluator.task import reference_module_source
from evaluator.timing import SCREEN, interleave
from evaluator.types import Workload

logger = logging.getLogger(__name__)

MODES: dict[str, tuple[str, ...]] = {
    "eager": ("eager",),
    "compile": ("default",),
    "max-autotune": ("max-autotune-no-cudagraphs",),
    "best": ("eager", "default", "max-autotune-no-cudagraphs"),
    "seed": ("seed",),
}
"""By config value: what is tried; the fastest is the baseline, workload by workload."""
LABELS = {"eager": "eager", "default": "torch.compile", "max-autotune-no-cudagraphs": "max-autotune", "seed": "seed"}
BUILD_SECONDS = 600.0
LEAD_FACTOR = 1.5
MAX_LEAD_S = 2e-3
"""A call whose launch takes longer shows it in its samples."""


class Lead:
    """How long the device idles before a timed call, so that the host has launched it by then.

    One for all models that are timed together: what the flush takes must be the same for all of them.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.call_ms = 0.0
        """What a call takes the slower host, in ms."""

    def learn(self, block: Block) -> Block:
        """Let later blocks wait for a host as slow as this one's."""
        self.seconds = min(MAX_LEAD_S, max(self.seconds, LEAD_FACTOR * block.call_s))
        self.call_ms = max(self.call_ms, block.call_s * 1e3)
        return block


class Baseline:
    """One worker with the reference or the seed built for every workload."""

    def __init__(self, cases: DeviceCases, pool: WorkerPool, make_arena: Any, kind: str, ring: int) -> None:
        self._cases, self._kind, self._ring = cases, kind, ring
        self._chosen: dict[str, str] = {}
        self.medians: dict[str, dict[str, float]] = {}
        """Screened latency in ms by workload and mode, for the record."""
        self._carved, nbytes = self._carve()
        self._arena: Arena = make_arena(nbytes)
        self._bench = Bench(pool.trusted(), self._arena, BUILD_SECONDS, keep_bytes=0)

    def prepare(self) -> None:
        """Build every mode for every workload and keep the fastest. Hold the GPU alone while this runs."""
        self._bench.request("arena", token=self._arena.token())
        for workload in self._cases.task.workloads:
            self._fill(workload)
            for mode in MODES[self._kind]:
                self._build(workload, mode)
            medians = {mode: self._screen(workload, mode) for mode in MODES[self._kind]}
            self.medians[workload.name] = {LABELS[mode]: median for mode, median in medians.items()}
            self._chosen[workload.name] = min(medians, key=lambda mode: medians[mode])

    def label(self, workload: Workload) -> str:
        """What the baseline of a workload is: eager, torch.compile, max-autotune or seed."""
        return LABELS[self._chosen[workload.name]]

    def block(self, workload: Workload, count: int, first: int, lead: Lead) -> Block:
        """A block of samples. Raises `HarnessError` when the baseline's process fails."""
        return self._block(workload, self._chosen[workload.name], count, first, lead)

    def close(self) -> None:
        """End the process and free its memory."""
        self._bench.worker.kill()
        self._arena.close()

    def _carve(self) -> tuple[dict[str, Carved], int]:
        """All workloads side by side, each behind the ones before."""
        carved: dict[str, Carved] = {}
        total = 0
        for workload in self._cases.task.workloads:
            own = self._cases.stand(workload).carve(self._ring, 1)
            carved[workload.name] = own.moved(total)
            total += own.layout.nbytes
        return carved, max(total, Layout().nbytes)

    def _fill(self, workload: Workload) -> None:
        carved, stand = self._carved[workload.name], self._cases.stand(workload)
        self._bench.lay_out(stand, carved)
        fill_sets(self._cases, self._arena, workload, carved)

    def _build(self, workload: Workload, mode: str) -> None:
        carved, stand = self._carved[workload.name], self._cases.stand(workload)
        try:
            if mode == "seed":
                assert self._cases.task.seed_source is not None
                self._bench.request("load", source=self._cases.task.seed_source)
            else:
                source = reference_module_source(self._cases.task, workload)
                self._bench.request("load_reference", source=source, mode=mode)
            self._bench.build(stand, carved, f"{mode} {workload.name}")
        except WorkerError as failure:
            raise TaskError(
                f"{self._cases.task.origin}: the baseline ({LABELS[mode]}) of task {self._cases.task.name} fails at "
                f"{workload.name}: {failure.reason}",
                "choose another evaluator.baseline",
            ) from None

    def _screen(self, workload: Workload, mode: str) -> float:
        lead = Lead()
        runner = lambda count, first: self._block(workload, mode, count, first, lead)  # noqa: E731
        samples = interleave(SCREEN, runner, None, time.perf_counter)
        return summarise(samples).median_ms

    def _block(self, workload: Workload, mode: str, count: int, first: int, lead: Lead) -> Block:
        try:
            name = f"{mode} {workload.name}"
            asked = {"name": name, "count": count, "first": first, "lead_s": lead.seconds}
            answer = self._bench.request("block", **asked, keep_outputs=False)
            return lead.learn(Block.model_validate(answer))
        except WorkerError as failure:
            raise HarnessError(f"the baseline's process failed at {workload.name}: {failure.reason}") from None


def fill_sets(
    cases: DeviceCases, arena: Arena, workload: Workload, carved: Carved, shift: int = 0, calls: Iterable[int] = ()
) -> None:
    """Put the inputs of seed `place + shift` (modulo the ring) at the places that `calls` use; at all when left out."""
    ring = len(carved.sets)
    for place in sorted({call % ring for call in calls} or range(ring)):
        put_inputs(arena, cases.plain(workload, (place + shift) % ring), carved.sets[place])
    settle(arena)
