"""The ordered stages and how one candidate walks through them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
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
