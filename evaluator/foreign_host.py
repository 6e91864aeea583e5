"""The trusted end of `evaluator.foreign`: one confined process for each foreign task, and what it answers, checked."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evaluator import sandbox
from evaluator.errors import EnvironmentUnusableError, HarnessError, KernevoError, TaskError, UsageError
from evaluator.foreign import ForeignTask
from evaluator.gpu_host import GpuWorker, Nursery, WorkerError
from evaluator.types import EvalStatus, Evaluation, KernelSource

JUDGE_BYTES = 16 << 30
"""Private memory that a judge, its reference included, may add to what the prewarmed process holds."""
_MAX_TEXT = 4000
_REFUSALS = {kind.__name__: kind for kind in (TaskError, UsageError, EnvironmentUnusableError, HarnessError)}


class JudgeLostError(Exception):
    """The judge's process is of no more use and nothing is known about the kernel; `timeout` when it took too long."""

    def __init__(self, reason: str, timeout: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.timeout = reason, timeout


class ForeignJudges:
    """Where judges of foreign tasks come from. Thread-safe.

    `settings` are an evaluator's (evo.config has their meaning) with its `type`. With the gpu evaluator the judges
    share one user and one folder of locks, so that one of them times while the others wait.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        gpu = settings.get("type") == "gpu" and settings.get("platform", "cuda") == "cuda"
        self._platform = "cuda" if gpu else "cpu"
        self._temporary = tempfile.TemporaryDirectory(prefix="kernevo-serve-")
        self._folder = Path(self._temporary.name)
        self._folder.chmod(0o711)
        self._extra = {name: os.environ[name] for name in ("CUDA_VISIBLE_DEVICES",) if name in os.environ}
        if gpu:
            locks = self._folder / "locks"
            locks.mkdir()
            locks.chmod(0o1777)
            self._extra["XDG_RUNTIME_DIR"] = str(locks)
        self._lock = threading.Lock()
        self._nursery = self._new_nursery()

    def start(self, task: ForeignTask, **changes: object) -> ForeignJudge:
        """A judge that has not looked at the task yet; `changes` are settings of its own. Raises HarnessError."""
        slot = 0 if self._platform == "cuda" else next(sandbox.SLOTS)
        with self._lock:
            if not self._nursery.alive:
                self._nursery.close()
                self._nursery = self._new_nursery()
            nursery = self._nursery
        return ForeignJudge(nursery, self._folder, slot, task, {**self._settings, **changes})

    def _new_nursery(self) -> Nursery:
        folder = Path(tempfile.mkdtemp(prefix="judges-", dir=self._folder))
        return Nursery(folder, self._platform, self._extra, kind="judge")

    def close(self) -> None:
        """End every judge and remove all files."""
        self._nursery.close()
        self._temporary.cleanup()


class ForeignJudge:
    """One task's judge. One thread at a time uses it; `end` may be called from any."""

    def __init__(
        self, nursery: Nursery, folder: Path, slot: int, task: ForeignTask, settings: Mapping[str, Any]
    ) -> None:
        self._task, self._settings = task, dict(settings)
        self._opened = False
        self._worker = GpuWorker(nursery, folder, confined=True, slot=slot, host_bytes=JUDGE_BYTES, cache=None)

    def judge(self, sources: Sequence[KernelSource], seconds: Sequence[float]) -> Iterator[Evaluation]:
        """Verdicts in the order of the sources; each may take its `seconds`, counted from the one before it.

        Raises `KernevoError` for a task that cannot be judged and `JudgeLostError`; the judge is of no more use after
        that second one.
        """
        if not self._opened:
            self._checked(self._ask("open", seconds[0], task=self._task.model_dump(), settings=self._settings))
            self._opened = True
        self._ask("judge", seconds[0], sources=[source.text for source in sources])
        for source, limit in zip(sources, seconds, strict=True):
            answer = self._checked(self._ask("answer", limit))
            try:
                evaluation = Evaluation.model_validate(answer["evaluation"])
            except (KeyError, TypeError, ValidationError):
                raise JudgeLostError("the judge's answer is no evaluation") from None
            if evaluation.source_sha != source.sha:
                raise JudgeLostError("the judge's answer is about another kernel")
            yield evaluation

    def end(self) -> None:
        """Kill the process without waiting; whoever waits for its answer gets `JudgeLostError`."""
        self._worker.end()

    def close(self) -> None:
        """Kill the process and remove its files; safe to call twice."""
        self._worker.kill()

    def _ask(self, command: str, seconds: float, **arguments: Any) -> Any:
        try:
            return self._worker.request(command, seconds, **arguments)
        except WorkerError as failure:
            timeout = failure.status is EvalStatus.TIMEOUT
            reason = f"not done after {seconds:g} s" if timeout else f"the judge's process was lost: {failure.reason}"
            raise JudgeLostError(reason, timeout) from None
        except (HarnessError, OSError) as failure:  # it ended before it had been asked anything
            raise JudgeLostError(f"the judge's process was lost: {failure}") from None

    def _checked(self, answer: Any) -> dict[str, Any]:
        if not isinstance(answer, dict):
            raise JudgeLostError("the judge's answer is none")
        refused = answer.get("refused")
        if refused is None:
            return answer
        if not isinstance(refused, dict):
            raise JudgeLostError("the judge's answer is none")
        kind: type[KernevoError] = _REFUSALS.get(str(refused.get("kind")), KernevoError)
        raise kind(str(refused.get("message"))[:_MAX_TEXT], str(refused.get("hint"))[:_MAX_TEXT])
