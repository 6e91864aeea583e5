"""The CPU evaluator: correctness in Triton's interpreter, latency from a model. Needs no GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluator import hardware
from evaluator.backends.local import LocalEvaluator
from evaluator.errors import TaskError
from evaluator.judge import Judge, check_task
from evaluator.stages import CpuStages
from evaluator.types import Evaluation, KernelSource, Task
from evaluator.worker_host import WorkerHost


class CpuEvaluator(LocalEvaluator):
    """Judges on the CPU; see `evaluator.protocol.Evaluator` for the contract.

    Settings: `target`, `workers`, `timeout_s`, `memory_mb`, `cache`, `cache_dir`, `seed` (evo.config has their
    meaning and defaults). Nothing is started before the first source that is not in the cache. `evaluate` raises
    `TaskError` before any candidate is run when the task itself is at fault: its reference fails, a constant output
    passes it, or its seed does not.
    """

    name = "cpu"
    revision = 5

    def __init__(self, task: Task, settings: Mapping[str, Any]) -> None:
        self._hardware = hardware.get(str(settings.get("target", "h200")))
        super().__init__(task, settings, self._hardware.name)
        self._stages: CpuStages | None = None
        self._hosts: list[WorkerHost] = []
        self._baseline: dict[str, float] | None = None
        self._seed_evaluation: Evaluation | None = None

    def _cache_context(self) -> dict[str, object]:
        from evaluator.calibration import digest

        return {"calibration": digest(self._hardware.name)}

    def _release(self) -> None:
        for host in self._hosts:
            host.close()
        self._hosts = []

    def _prepare(self) -> None:
        """Start the workers, refuse a task that cannot tell right from wrong, judge the seed."""
        stages = self._start()
        if self._baseline is not None:
            return
        if reason := check_task(self._task, self._seed):
            raise TaskError(f"{self._task.origin}: {reason}", "give inputs or shapes whose outputs vary")
        self._baseline = self._judge_seed(stages)

    def _start(self) -> CpuStages:
        with self._lock:
            if self._stages is None:
                folder = self._make_folder()
                compiler = WorkerHost(folder, interpret=False)
                interpreter = WorkerHost(folder, interpret=True)
                self._hosts = [compiler, interpreter]
                for host in self._hosts:
                    host.start()
                judge = Judge(self._task, self._seed)
                self._stages = CpuStages(judge, compiler, interpreter, self._hardware, self._limits)
            return self._stages

    def _judge_seed(self, stages: CpuStages) -> dict[str, float]:
        """Modelled latency of the seed by workload, in ms: the baseline. Empty when the task has no seed."""
        if self._task.seed_source is None:
            return {}
        source = KernelSource(text=self._task.seed_source)
        evaluation = self._cached(source) or self._walk(stages, source, {})
        if not evaluation.status.passed:
            raise TaskError(
                f"{self._task.origin}: the seed of task {self._task.name} is not a correct kernel: "
                f"{evaluation.status}: {evaluation.reason}",
                "mend seed.py, or remove it to go without a baseline",
            )
        baseline = {name: timing.median_ms for name, timing in evaluation.timings.items()}
        against_itself = {
            name: timing.model_copy(update={"baseline_ms": baseline[name], "baseline": "seed"})
            for name, timing in evaluation.timings.items()
        }
        self._seed_evaluation = evaluation.model_copy(update={"timings": against_itself, "cached": False})
        return baseline

    def _judge(self, source: KernelSource) -> Evaluation:
        assert self._stages is not None
        assert self._baseline is not None
        if self._seed_evaluation is not None and self._seed_evaluation.source_sha == source.sha:
            return self._seed_evaluation
        return self._walk(self._stages, source, self._baseline)

    def _walk(self, stages: CpuStages, source: KernelSource, baseline: Mapping[str, float]) -> Evaluation:
        return self._walked(source, stages.stages(baseline))
