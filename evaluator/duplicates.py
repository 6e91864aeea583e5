"""Candidates that would run what a passed one has run already: timing them again would teach nothing.

Two candidates run the same when, at every benchmark workload, they launch the same machine code with the same grids,
constants, numbers and shared memory, and when their host code has the same form. The form is the syntax tree without
jit functions and docstrings. Numbers in it are masked: tunables always, since what they do is in the launches, and all
others where a task lets host code compute nothing, so that they too can only reach launches.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from evaluator.cascade import Facts, Stage, Verdict
from evaluator.source_hash import host_hash
from evaluator.stages import resource_key
from evaluator.types import EvalStatus, Evaluation, KernelSource, Task

if TYPE_CHECKING:
    from evaluator.compile import CompiledLaunch


class Known(NamedTuple):
    """A passed candidate."""

    sha: str
    latency_ms: float


class Duplicates:
    """The passed candidates of one task by what they run. Thread-safe; evaluators of several GPUs may share one.

    Of candidates that run the same and are judged at once, the first to be compiled is judged and the others wait for
    its verdict: its pass makes them duplicates, anything else lets the next one be judged.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._changed = threading.Condition()
        self._passed: dict[str, dict[str, float]] = {}  # what runs -> sha -> latency
        self._judging: dict[str, str] = {}  # what runs -> sha

    @contextmanager
    def candidate(self, source: KernelSource) -> Iterator[Candidate]:
        """One candidate while it is judged."""
        candidate = Candidate(self, source.sha)
        try:
            yield candidate
        finally:
            if candidate.key:
                self.leave(candidate.key, candidate.sha, candidate.latency_ms)

    def find(self, key: str, sha: str) -> Known | None:
        """The passed candidate that runs the same as `sha`; None when `sha` is to be judged."""
        with self._changed:
            while True:
                passed = self._passed.get(key, {})
                if passed and sha not in passed:
                    return Known(*next(iter(passed.items())))
                if passed or self._judging.setdefault(key, sha) == sha:
                    return None
                self._changed.wait()

    def key(self, facts: Facts) -> str:
        """What a device would run for a compiled candidate, as a digest."""
        host = host_hash(facts.source.text, every_number=self._task.op_policy == "strict")
        launches = {name: [_launch(facts, launch) for launch in found] for name, found in facts.compiled.items()}
        return hashlib.sha256(repr((host, sorted(launches.items()))).encode("utf-8", "surrogatepass")).hexdigest()

    def leave(self, key: str, sha: str, latency_ms: float | None) -> None:
        """`sha`, which runs what `key` says, is judged; the latency of a passed candidate, None for others."""
        with self._changed:
            if self._judging.get(key) == sha:
                del self._judging[key]
            if latency_ms is not None:
                self._passed.setdefault(key, {}).setdefault(sha, latency_ms)
            self._changed.notify_all()

    def forget(self, sha: str) -> None:
        """Nobody judges `sha` any more, whatever it runs: its evaluator was lost."""
        with self._changed:
            for key in [key for key, judged in self._judging.items() if judged == sha]:
                del self._judging[key]
            self._changed.notify_all()


@dataclass
class Candidate:
    """One candidate's way through the cascade."""

    register: Duplicates
    sha: str
    key: str = ""
    """What it runs; known once it is compiled."""
    latency_ms: float | None = None
    """Set when it has passed."""

    def stage(self, compiling: Stage) -> Stage:
        """`compiling`, which then objects to a candidate that runs the same as a passed one."""

        def stage(facts: Facts) -> Verdict | None:
            if (verdict := compiling(facts)) is not None:
                return verdict
            self.key = self.register.key(facts)
            known = self.register.find(self.key, self.sha)
            return None if known is None else _verdict(known)

        return stage

    def settle(self, evaluation: Evaluation) -> Evaluation:
        """Remember the verdict, and hand it on."""
        self.latency_ms = evaluation.latency_ms if self.key else None
        return evaluation


def _launch(facts: Facts, launch: CompiledLaunch) -> tuple[object, ...]:
    """One launch without names: parameters may be renamed, their order may not change."""
    resources = facts.resources[resource_key(launch)]
    return (
        resources.sass_sha or launch.ptx_sha,
        launch.grid,
        tuple(launch.signature.values()),
        tuple(launch.constants.values()),
        tuple(launch.numbers.values()),
        resources.shared_bytes,
        launch.num_warps,
        launch.num_ctas,
    )


def _verdict(known: Known) -> Verdict:
    reason = f"runs the same machine code as candidate {known.sha[:12]}, which takes {known.latency_ms:.4g} ms"
    advice = (
        "change something that reaches the machine code: the algorithm, what a program computes, a block size, warps; "
        "names, comments, equal expressions and num_stages without a loop do not"
    )
    return Verdict(EvalStatus.DUPLICATE, reason, f"{reason}\n{advice}")
