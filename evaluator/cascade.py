"""The ordered stages and how one candidate walks through them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from evaluator.types import EvalStatus, KernelResources, KernelSource, Profile, StageRecord, Timing


@dataclass(frozen=True)
class Verdict:
    """Why a stage ends the walk."""

    status: EvalStatus
    reason: str
    explain: str = ""


@dataclass
class Facts:
    """What is known about one candidate; each stage adds to it."""

    source: KernelSource
    compiled: dict[str, list[Any]] = field(default_factory=dict)
    """Compiled launches by workload name, in launch order."""
    resources: dict[str, KernelResources] = field(default_factory=dict)
    """By launch key (see `evaluator.stages`)."""
    launches: dict[str, list[Any]] = field(default_factory=dict)
    """(LaunchTrace, KernelResources) of each launch by workload name: what the cost model was given."""
    timings: dict[str, Timing] = field(default_factory=dict)
    profile: Profile | None = None
    notes: list[str] = field(default_factory=list)
    """Lines for `Evaluation.explain` of a pass."""
    checked_kernels: set[str] = field(default_factory=set)
    """Names of the kernels that the checks ran."""
    checks_passed: int = 0
    checks_total: int = 0
    max_error: float | None = None

    def take(self, other: Facts) -> None:
        """Add what another stage found out on facts of its own."""
        self.compiled.update(other.compiled)
        self.resources.update(other.resources)
        self.launches.update(other.launches)
        self.notes += other.notes
        self.checked_kernels |= other.checked_kernels
        if other.checks_total:
            self.checks_passed, self.checks_total = other.checks_passed, other.checks_total
        if other.max_error is not None:
            self.max_error = max(self.max_error or 0.0, other.max_error)


Stage = Callable[[Facts], Verdict | None]


def walk(stages: Sequence[tuple[str, Stage]], facts: Facts) -> tuple[Verdict, tuple[StageRecord, ...]]:
    """Run `stages` until one objects. A stage that raises fails closed as HARNESS_ERROR, blaming itself."""
    records: list[StageRecord] = []
    for name, stage in stages:
        started = time.perf_counter()
        try:
            verdict = stage(facts)
        except Exception as error:
            text = f"the {name} stage failed: {type(error).__name__}: {error}"
            verdict = Verdict(EvalStatus.HARNESS_ERROR, text.splitlines()[0])
        seconds = time.perf_counter() - started
        status = verdict.status if verdict else EvalStatus.PASSED
        records.append(StageRecord(name=name, status=status, seconds=seconds, detail=verdict.reason if verdict else ""))
        if verdict is not None:
            return verdict, tuple(records)
    return Verdict(EvalStatus.PASSED, "", "\n".join(facts.notes)), tuple(records)


def at_once(stages: Sequence[tuple[str, Stage]], enter: Callable[[], None]) -> list[tuple[str, Stage]]:
    """The same stages, which all run as soon as the first is asked for; each verdict is given in its turn.

    Each stage has a thread, which calls `enter` first, and facts of its own. No thread outlives the group: an
    objection is given once all of them have ended.
    """
    started: list[tuple[Future[Verdict | None], Facts]] = []

    def run(stage: Stage, facts: Facts) -> Verdict | None:
        enter()
        return stage(facts)

    def start(source: KernelSource) -> None:
        with ThreadPoolExecutor(len(stages), thread_name_prefix="kernevo-stage") as pool:
            for _, stage in stages:
                facts = Facts(source)
                started.append((pool.submit(run, stage, facts), facts))

    def turn(index: int) -> Stage:
        def stage(facts: Facts) -> Verdict | None:
            if not started:
                start(facts.source)
            future, own = started[index]
            facts.take(own)
            return future.result()

        return stage

    return [(name, turn(index)) for index, (name, _) in enumerate(stages)]
