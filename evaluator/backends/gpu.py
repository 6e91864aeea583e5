"""The GPU evaluator: measures. Candidates run in processes of their own, the judge in this one.

static -> compile -> smoke, as the cpu evaluator does them, then correct -> time -> profile -> cross-check on the GPU,
and in the thorough mode sanitize -> counters.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from evaluator import hardware
from evaluator.backends.local import LocalEvaluator
from evaluator.cascade import Facts, Stage, at_once
from evaluator.duplicates import Duplicates
from evaluator.errors import TaskError
from evaluator.gpu_baseline import Baseline
from evaluator.gpu_cases import DeviceCases
from evaluator.gpu_correct import PLACES, Bench
from evaluator.gpu_host import WorkerPool
from evaluator.gpu_machine import Machine, find
from evaluator.gpu_memory import Arena
from evaluator.gpu_processes import Processes
from evaluator.gpu_setting import Setting
from evaluator.gpu_stages import GpuStages
from evaluator.gpu_thorough import Thorough
from evaluator.judge import Judge, check_task
from evaluator.stages import CpuStages, static_stage
from evaluator.timing import CONFIRM, SCREEN, Tier
from evaluator.types import Evaluation, EvaluationJob, KernelSource, Task
from evaluator.worker import CANNOT_JUDGE

logger = logging.getLogger(__name__)

RING = 8
"""Input sets that timed calls go through, where memory allows."""
CASES_SHARE = 0.2
"""Share of the device's memory that expected outputs may keep."""
ARENAS_SHARE = 0.35
"""Share of the device's memory for what candidates are given and return."""
CANDIDATES_SHARE = 0.3
"""Share of the device's memory that candidates and the baseline may take for themselves, all together."""
MAX_KEPT_BYTES = 8 << 30
"""Outputs that stay in memory until the judge has chosen which to check; a quarter of a candidate's share at most."""
LEAST_BYTES = 1 << 30
"""Of the device, for a candidate's context and workspaces."""
NEAR_BEST = 0.97
"""Screened speedups down to this share of the best one seen are confirmed."""


class GpuEvaluator(LocalEvaluator):
    """Judges on one GPU; see `evaluator.protocol.Evaluator` for the contract.

    Settings: `platform`, `device` (one index), `workers`, `timeout_s`, `memory_mb`, `smoke`, `duplicates`, `baseline`,
    `timing`, `max_samples`, `allow_busy`, `thorough`, `cache`, `cache_dir`, `seed` (evo.config has their meaning and
    defaults).
    `processes` (on cuda) are those of another evaluator's to fork from, `memory_share` is the part of the device's free
    memory to use; both are for callers with several evaluators on one GPU.
    `evaluate` raises `TaskError` before any candidate is run when the task itself is at fault, and
    `EnvironmentUnusableError` without a usable GPU.
    """

    name = "gpu"
    revision = 3

    def __init__(self, task: Task, settings: Mapping[str, Any], duplicates: Duplicates | None = None) -> None:
        """`duplicates` is given by whoever runs several evaluators that should know of each other's candidates."""
        self._settings = {**settings, "workers": settings.get("workers") or default_workers()}
        self._hardware = hardware.get(str(settings.get("target", "h200")))
        self._baseline_kind = str(settings.get("baseline", "best"))
        self._timing_kind = str(settings.get("timing", "auto"))
        self._confirm = CONFIRM.at_most(settings.get("max_samples"))
        super().__init__(task, self._settings, self._hardware.name)
        if self._baseline_kind == "seed" and task.seed_source is None:
            raise TaskError(f"{task.origin}: task {task.name} has no seed kernel to compare with", "use baseline: best")
        self._machine: Machine | None = None
        self._given_processes: Processes | None = settings.get("processes")
        self._processes: Processes | None = None
        self._pool: WorkerPool | None = None
        self._offline: CpuStages | None = None
        self._setting: Setting | None = None
        self._thorough: Thorough | None = None
        self._arenas: queue.Queue[Arena] = queue.Queue()
        self._duplicates = duplicates or Duplicates(task)
        self._best: float | None = None
        self._again = False
        self._best_lock = threading.Lock()

    def retime(self, jobs: Iterable[EvaluationJob]) -> Iterator[tuple[EvaluationJob, Evaluation]]:
        """Like `evaluate`, in the confirm tier: checks and timing are done anew, whatever is known of the source."""
        with self.again():
            yield from self.evaluate(jobs)

    @contextmanager
    def again(self) -> Iterator[None]:
        """While this is entered, verdicts are those of `retime`."""
        self._again = True
        try:
            yield
        finally:
            self._again = False

    def _cached(self, source: KernelSource) -> Evaluation | None:
        return None if self._again else super()._cached(source)

    def _judge_and_keep(self, source: KernelSource) -> Evaluation:
        return self._judge(source) if self._again else super()._judge_and_keep(source)

    def _cache_context(self) -> dict[str, object]:
        names = ("platform", "device", "baseline", "timing", "max_samples", "smoke", "thorough")
        return {name: self._settings.get(name) for name in names}

    def _prepare(self) -> None:
        with self._lock:
            if self._setting is not None:
                return
            folder = self._make_folder()
            machine = find(
                str(self._settings.get("platform", "cuda")),
                int(self._settings.get("device", 0)),
                folder,
                self._hardware.name,
                bool(self._settings.get("allow_busy", False)),
            )
            self._machine, self._target = machine, machine.target
            machine = replace(machine, memory_bytes=int(machine.memory_bytes * self._settings.get("memory_share", 1.0)))
            # Three processes import torch while the judge looks at the task.
            processes = self._given_processes or Processes.start(folder, machine.platform, machine.worker_environment)
            self._processes = processes
            self._pool = WorkerPool(
                folder,
                processes.nursery,
                warm=self._workers,
                gate=machine.locks.shared,
                host_bytes=self._limits.memory_bytes,
            )
            if reason := check_task(self._task, self._seed):
                raise TaskError(f"{self._task.origin}: {reason}", "give inputs or shapes whose outputs vary")
            judge = Judge(self._task, self._seed)
            self._pool.open()
            self._setting = self._make_setting(machine, self._pool, judge)
            if self._settings.get("thorough", False):
                self._thorough = Thorough(self._setting.cases, judge, machine, folder)
            self._offline = CpuStages(judge, processes.compiler, processes.interpreter, self._hardware, self._limits)

    def _make_setting(self, machine: Machine, pool: WorkerPool, judge: Judge) -> Setting:
        """Cases, arenas and the baseline; everything that candidates share."""
        cases = DeviceCases(self._task, self._seed, machine.device, int(machine.memory_bytes * CASES_SHARE))
        budget = int(machine.memory_bytes * ARENAS_SHARE)
        with machine.locks.shared():  # nobody is timed while shapes are found out and memory is taken
            ring, size, count = arena_plan(cases, budget, self._workers)
            count, own_bytes = candidates_plan(cases, int(machine.memory_bytes * CANDIDATES_SHARE), count)
            for _ in range(count):
                self._arenas.put(machine.make_arena(size))
        baseline = None
        if self._baseline_kind != "none":
            baseline = Baseline(cases, pool, machine.make_arena, self._baseline_kind, ring)
            with machine.locks.exclusive():
                baseline.prepare()
        return Setting(
            cases=cases,
            baseline=baseline,
            locks=machine.locks,
            limit=lambda workload: machine.limit(self._task, workload, judge.shapes(workload).bytes_moved),
            ring=ring,
            target=machine.target,
            tier=self._tier,
            energy_mj=machine.energy_mj if self._settings.get("energy", True) else lambda run: None,
            has_clocks=machine.has_clocks,
            memory_bytes=own_bytes,
            keep_bytes=min(MAX_KEPT_BYTES, own_bytes // 4),
            straight_to_confirm=self._timing_kind == "confirm",
        )

    def _tier(self, screened: float | None) -> Tier:
        """Confirm always, never, or what comes near the best so far."""
        if self._again:
            return self._confirm
        if self._timing_kind != "auto":
            return {"screen": SCREEN, "confirm": self._confirm}[self._timing_kind]
        with self._best_lock:
            if screened is None or self._best is None or screened >= NEAR_BEST * self._best:
                self._best = max(self._best or 0.0, screened or 0.0)
                return self._confirm
        return SCREEN

    def _judge(self, source: KernelSource) -> Evaluation:
        assert self._pool is not None
        assert self._setting is not None
        assert self._offline is not None
        assert self._machine is not None
        self._machine.enter_thread()
        desk = _Desk(self._pool, self._arenas, self._limits.wall_seconds, self._setting)
        try:
            if self._again:
                return self._walked(source, self._stages(self._offline.compile, GpuStages(self._setting, desk.bench)))
            with self._duplicates.candidate(source) as candidate:
                refuse = self._settings.get("duplicates", "refuse") == "refuse"
                compile_ = candidate.stage(self._offline.compile) if refuse else self._offline.compile
                stages = self._stages(compile_, GpuStages(self._setting, desk.bench))
                return candidate.settle(self._walked(source, stages))
        finally:
            desk.clear()

    def _stages(self, compile_: Stage, gpu: GpuStages) -> list[tuple[str, Stage]]:
        """All of them. A worker that is alone has the machine to itself and waits for no compiler or interpreter."""
        assert self._machine is not None
        smokes = self._settings.get("smoke", True) and not self._again
        smoke: list[tuple[str, Stage]] = [("smoke", self._smoke)] if smokes else []
        first, *others = gpu.stages()
        early = [("compile", compile_), *smoke, first]
        if self._workers == 1:
            early = at_once(early, self._machine.enter_thread)
        thorough = self._thorough.stages() if self._thorough and not self._again else []
        return [("static", static_stage(self._task)), *early, *others, *thorough]

    def _smoke(self, facts: Facts) -> Any:
        """The interpreter's checks; a kernel that the interpreter cannot run is none the worse for it."""
        assert self._offline is not None
        found = self._offline.smoke(facts)
        if found is not None and CANNOT_JUDGE in found.reason:
            facts.notes.append(f"not run in the interpreter: {found.reason}")
            return None
        return found

    def _release(self) -> None:
        if self._machine is not None:
            with suppress(RuntimeError):  # a lost context, which has nothing left to free
                self._machine.enter_thread()
        if self._thorough is not None:
            self._thorough.close()
            self._thorough = None
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if self._processes is not None and self._processes is not self._given_processes:
            self._processes.close()
        self._processes = None
        if self._setting is not None and self._setting.baseline is not None:
            self._setting.baseline.close()
        self._setting = None
        while not self._arenas.empty():
            self._arenas.get().close()
        if self._machine is not None:
            self._machine.give_back()


class _Desk:
    """A worker and an arena for one candidate, taken when they are first needed."""

    def __init__(self, pool: WorkerPool, arenas: queue.Queue[Arena], seconds: float, setting: Setting) -> None:
        self._pool, self._arenas, self._seconds, self._setting = pool, arenas, seconds, setting
        self._bench: Bench | None = None

    def bench(self) -> Bench:
        if self._bench is None:
            arena = self._arenas.get()
            try:
                worker = self._pool.take()
            except BaseException:
                self._arenas.put(arena)
                raise
            self._bench = Bench(worker, arena, self._seconds, self._setting.keep_bytes)
            with self._setting.locks.shared():
                self._bench.request("arena", token=arena.token(), memory_bytes=self._setting.memory_bytes)
        return self._bench

    def clear(self) -> None:
        if self._bench is not None:
            self._pool.give_up(self._bench.worker)
            self._arenas.put(self._bench.arena)
            self._bench = None


def default_workers(gpus: int = 1) -> int:
    """For each GPU its share of half the cores: a candidate keeps a compiler busy beside its worker. Eight at most."""
    return max(1, min(8, (os.cpu_count() or 1) // 2 // gpus))


def candidates_plan(cases: DeviceCases, budget: int, count: int) -> tuple[int, int]:
    """(candidates at once, bytes that each may take beside its arena): fewer than `count` where they need more.

    The least is what the harness has a candidate keep (a block of two outputs and the one being made), as much as its
    inputs for its own use, and what a context and its kernels take.
    """
    sizes = (cases.stand(workload).carve(1, 1) for workload in cases.task.workloads)
    least = max(one.input_bytes + 3 * sum(place.nbytes for place in one.sinks[0]) for one in sizes) + LEAST_BYTES
    count = max(1, min(count, budget // least - 1))  # the baseline is one more
    return count, max(least, budget // (count + 1))


def arena_plan(cases: DeviceCases, budget: int, workers: int) -> tuple[int, int, int]:
    """(input sets in the ring, bytes of one arena, arenas) that fit into `budget` bytes.

    A ring shrinks, down to two sets, before arenas become fewer than two, and so that its cases need not be made again
    whenever its contents change. Raises `TaskError` when not one arena fits.
    """
    most = max(2, min(RING, cases.most_sets()))
    stands = [cases.stand(workload) for workload in (*cases.task.check_shapes, *cases.task.workloads)]
    for least in (2, 1):
        for ring in range(most, 1, -1):
            # The baseline holds all workloads side by side, in an arena of its own.
            beside = sum(cases.stand(workload).carve(ring, 1).layout.nbytes for workload in cases.task.workloads)
            size = max(
                max(stand.carve(ring, 1).layout.nbytes, stand.carve(PLACES, 2).layout.nbytes) for stand in stands
            )
            count = min(workers, (budget - beside) // size)
            if count >= min(least, workers):
                return ring, size, count
    raise TaskError(
        f"{cases.task.origin}: inputs and outputs of task {cases.task.name} do not fit on this GPU",
        f"use smaller workloads; there is room for {budget / 2**30:.3g} GiB",
    )
