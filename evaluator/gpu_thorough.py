"""The thorough mode's two stages: faults that answers do not show, and what the hardware counted.

A correct and timed candidate is replayed (`evaluator.gpu_replay`) under NVIDIA's tools, in processes of its own. The
memory and race checkers slow kernels down a hundred times, so they see the task's small check shapes; counters are of
the first benchmark workload. A tool that is missing or fails says nothing about the candidate: a note says so.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evaluator import sandbox
from evaluator.cascade import Facts, Stage, Verdict
from evaluator.gpu_cases import DeviceCases
from evaluator.gpu_machine import Machine
from evaluator.gpu_platform import ARENAS
from evaluator.gpu_refusal import verdict
from evaluator.gpu_replay import write_job
from evaluator.gpu_tools import ToolError, run_tool
from evaluator.judge import Judge
from evaluator.ncu import CountersReport, measure_counters
from evaluator.sanitize import ENVIRONMENT, OPTIONS, Finding, first_fault, sanitize
from evaluator.types import EvalStatus, Workload

REHEARSAL_SECONDS = 120.0
_HINTS = {
    EvalStatus.OUT_OF_BOUNDS: "mask loads and stores at the tensors' ends",
    EvalStatus.UNINITIALISED: "write every element before it is read",
    EvalStatus.RACE: "keep writes and reads of shared memory apart with a barrier",
}


@dataclass(frozen=True)
class Thorough:
    """What the stages share; one serves all candidates, from any thread."""

    cases: DeviceCases
    judge: Judge
    machine: Machine
    folder: Path
    """The evaluator's temporary one."""
    _stopped: threading.Event = field(default_factory=threading.Event)

    def close(self) -> None:
        """Kill the tools that run; the candidates under them get no verdict."""
        self._stopped.set()

    def stages(self) -> list[tuple[str, Stage]]:
        """In order; they come after profiling."""
        return [("sanitize", self.sanitize), ("counters", self.counters)]

    def sanitize(self, facts: Facts) -> Verdict | None:
        """memcheck, initcheck and racecheck; the first fault of the candidate's own kernels is its verdict."""
        if not self.machine.has_tools:
            facts.notes.append(f"no sanitizers on the {self.machine.platform} platform")
            return None
        shapes = self.cases.task.check_shapes
        silent: list[str] = []
        failed: dict[str, list[str]] = {}
        with self.machine.locks.shared(), self._replay(facts, [self._inputs(shape) for shape in shapes]) as replay:
            if reason := replay.rehearse(ENVIRONMENT):
                facts.notes.append(f"not checked by compute-sanitizer: {reason}")
                return None
            for tool in OPTIONS:
                report = sanitize(
                    tool, replay.command, replay.home, replay.logs, replay.environment, stopped=self._stopped
                )
                if fault := first_fault(report, facts.checked_kernels):
                    return _refusal(fault)
                (failed.setdefault(report.reason, []) if report.reason else silent).append(tool)
        facts.notes.extend(f"not checked by {', '.join(tools)}: {reason}" for reason, tools in failed.items())
        if silent:
            names = ", ".join(shape.name for shape in shapes)
            facts.notes.append(f"{', '.join(silent)} found nothing at {names}")
        return None

    def counters(self, facts: Facts) -> None:
        """DRAM, SM, L2, occupancy and stalls of the candidate's kernels, for its profile."""
        report = self._counted(facts)
        found = {"counters": report.kernels, "counters_reason": report.reason}
        assert facts.profile is not None
        facts.profile = facts.profile.model_copy(update=found)
        lines = [kernel.line() for kernel in report.kernels] or [f"no hardware counters: {report.reason}"]
        facts.notes.extend(lines)

    def _counted(self, facts: Facts) -> CountersReport:
        if not self.machine.has_tools:
            return CountersReport(reason=f"there are none on the {self.machine.platform} platform")
        shapes = self.judge.shapes(self.cases.task.workloads[0])
        with self._replay(facts, [shapes.for_worker()]) as replay:
            with self.machine.locks.shared():
                reason = replay.rehearse({})
            if reason:
                return CountersReport(reason=reason)
            where = (replay.home, replay.logs, replay.environment)
            with self.machine.locks.exclusive():
                return measure_counters(replay.command, sorted(facts.checked_kernels), *where, stopped=self._stopped)

    def _inputs(self, shape: Workload) -> dict[str, Any]:
        """A check shape's constructor arguments, parameters and inputs."""
        stand, case = self.cases.stand(shape), self.cases.plain(shape, 0)
        return {"init_args": stand.init_args, "state": dict(stand.state), "inputs": case.inputs}

    @contextmanager
    def _replay(self, facts: Facts, workloads: Sequence[Mapping[str, Any]]) -> Iterator[_Replay]:
        """The candidate's job in a folder of its own, as long as the context lasts."""
        home = Path(tempfile.mkdtemp(prefix="replay-", dir=self.folder))
        logs = Path(tempfile.mkdtemp(prefix="tools-", dir=self.folder))
        try:
            write_job(home, facts.source.text, workloads)
            # The tool's own files lie beside its log; the replay sets folders of its own.
            variables = {name: text for name, text in self.machine.worker_environment.items() if name != ARENAS}
            interpret = {"TRITON_INTERPRET": "1"} if self.machine.platform == "interpreter" else {}
            environment = sandbox.environment(logs, {**variables, **interpret})
            command = [sys.executable, "-P", "-m", "evaluator.gpu_replay", str(home), self.machine.platform]
            yield _Replay(home, logs, command, environment, self._stopped)
        finally:
            for folder in (home, logs):
                shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class _Replay:
    """A job on disk and how it is replayed."""

    home: Path
    logs: Path
    command: list[str]
    environment: Mapping[str, str]
    stopped: threading.Event

    def rehearse(self, extra: Mapping[str, str]) -> str:
        """Replay without a tool, which fills Triton's cache: no compiler runs under the tool then.

        Returns why that failed, or nothing.
        """
        environment = {**self.environment, **extra}
        log = self.logs / "rehearsal.log"
        try:
            done = run_tool(self.command, log, self.home, environment, REHEARSAL_SECONDS, self.stopped)
        except ToolError as error:
            return f"its replay: {error}"
        words = "".join(done.last_words.splitlines()[-1:])
        return f"its replay ended with code {done.code}: {words[-300:]}" if done.code else ""


def _refusal(fault: Finding) -> Verdict:
    return verdict(fault.status, f"{fault.tool}: {fault.line()}", _HINTS[fault.status])
