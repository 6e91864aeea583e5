"""What runs inside the actors of the ray backend: an evaluator of one GPU or one CPU, and what all of them share."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from evaluator.backends.cpu import CpuEvaluator
from evaluator.backends.gpu import GpuEvaluator
from evaluator.backends.local import LocalEvaluator, versions
from evaluator.duplicates import Duplicates
from evaluator.errors import KernevoError
from evaluator.types import Evaluation, KernelSource, Task
from evaluator.version import __version__

logger = logging.getLogger(__name__)

Make = Callable[[Task, Mapping[str, Any], Duplicates], LocalEvaluator]
"""Makes the evaluator of one actor; pickled by reference."""
Fault = tuple[type[KernevoError], str, str]
"""An error for the user with message and hint; pickling the error itself would lose the hint."""


class About(NamedTuple):
    """Where an actor runs, and with what."""

    gpu: str
    """Name of the GPU's model; empty on a CPU."""
    versions: Mapping[str, str]
    """Of everything that can change a verdict."""
    pid: int


class Judge:
    """One evaluator in a process of its own. Ray runs it; its candidates run in processes below it."""

    def __init__(self, task: Task, settings: Mapping[str, Any], make: Make, register: Any) -> None:
        self._settings = settings
        self._evaluator = make(task, settings, SharedDuplicates(task, register))

    def about(self) -> About:
        """Which GPU Ray gave this actor, and what is installed here."""
        return About(_gpu_name(self._settings), installed(), os.getpid())

    def prepare(self) -> Fault | None:
        """Start workers, judge the task, time the baseline on this GPU; what is wrong with task or machine."""
        try:
            self._evaluator._prepare()
        except KernevoError as error:
            return type(error), error.message, error.hint
        return None

    def judge(self, source: KernelSource) -> Evaluation:
        """The verdict on one source; raises only when the harness itself is broken."""
        return self._evaluator._judge_and_keep(source)

    def close(self) -> None:
        """Stop workers and remove temporary files."""
        self._evaluator.close()


class Register:
    """The passed candidates of all actors, in an actor of its own; see `Duplicates`."""

    def __init__(self, task: Task) -> None:
        self._known = Duplicates(task)

    def find(self, key: str, sha: str) -> tuple[str, float] | None:
        """As `Duplicates.find`."""
        return self._known.find(key, sha)

    def leave(self, key: str, sha: str, latency_ms: float | None) -> None:
        """As `Duplicates.leave`."""
        self._known.leave(key, sha, latency_ms)

    def forget(self, sha: str) -> None:
        """As `Duplicates.forget`."""
        self._known.forget(sha)


class SharedDuplicates(Duplicates):
    """Asks the register of all actors, so that a verdict does not depend on the GPU that a candidate went to."""

    def __init__(self, task: Task, register: Any) -> None:
        super().__init__(task)
        self._register = register

    def find(self, key: str, sha: str) -> Any:
        """The passed candidate that runs the same as `sha`; None, too, where the register is lost."""
        import ray
        from ray.exceptions import RayError

        from evaluator.duplicates import Known

        try:
            found = ray.get(self._register.find.remote(key, sha))
        except RayError as error:
            logger.warning("duplicates are judged: their register is lost: %s", error)
            return None
        return None if found is None else Known(*found)

    def leave(self, key: str, sha: str, latency_ms: float | None) -> None:
        """Tell the register that `sha` is judged."""
        import ray
        from ray.exceptions import RayError

        with suppress(RayError):
            ray.get(self._register.leave.remote(key, sha, latency_ms))


def make_evaluator(task: Task, settings: Mapping[str, Any], duplicates: Duplicates) -> LocalEvaluator:
    """The evaluator of one actor: for the one GPU that it sees, or for one CPU."""
    if settings.get("type", "cpu") == "cpu":
        return CpuEvaluator(task, settings)
    return GpuEvaluator(task, settings, duplicates)


def installed() -> dict[str, str]:
    """Versions here; builds for other devices (`+cu130`, `+cpu`) are the same version."""
    return {"kernevo": __version__, **{name: found.partition("+")[0] for name, found in versions().items()}}


def _gpu_name(settings: Mapping[str, Any]) -> str:
    if settings.get("type", "cpu") == "cpu":
        return ""
    if settings.get("platform", "cuda") != "cuda":
        return "interpreter"
    import torch

    return str(torch.cuda.get_device_name(0)) if torch.cuda.is_available() else ""
