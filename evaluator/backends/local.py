"""What the evaluators of one machine share: jobs taken lazily, verdicts in order, a cache, a fixed number at once."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import shutil
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from evaluator.cache import VerdictCache, default_folder
from evaluator.cascade import Facts, Stage, walk
from evaluator.sandbox import Limits
from evaluator.stages import static_stage
from evaluator.types import EvalStatus, Evaluation, EvaluationJob, KernelSource, Task
from evaluator.version import __version__

logger = logging.getLogger(__name__)

_POLL_S = 0.2
"""Longest wait before the consumer gets what is ready, in seconds."""


class LocalEvaluator(ABC):
    """Judges on this machine; see `evaluator.protocol.Evaluator` for the contract.

    A backend says what its name and target are, prepares itself before the first candidate, and judges one source.

    The setting `static: False`, which is no config key, leaves the static stage out: for measuring what the other
    stages see in sources that reading refuses. Such verdicts are never kept in the cache, nor taken from it.
    """

    name: str
    revision: int
    """Raised whenever a verdict or a latency can change for the same source, so that old ones are not reused."""

    def __init__(self, task: Task, settings: Mapping[str, Any], target: str) -> None:
        self._task = task
        self._target = target
        self._workers = int(settings.get("workers") or os.cpu_count() or 1)
        self._seed = int(settings.get("seed", 0))
        self._limits = Limits(
            wall_seconds=float(settings.get("timeout_s", 30.0)),
            memory_bytes=int(settings.get("memory_mb", 6144)) << 20,
        )
        self._reads = bool(settings.get("static", True))
        self._cache = self._open_cache(settings) if settings.get("cache", True) and self._reads else None
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._closed = False

    @property
    def task(self) -> Task:
        """The task every job is judged on."""
        return self._task

    @abstractmethod
    def _prepare(self) -> None:
        """Start workers and judge the task itself; called before each source that is not known, from one thread."""

    @abstractmethod
    def _judge(self, source: KernelSource) -> Evaluation:
        """The verdict on one source, from any thread."""

    @abstractmethod
    def _release(self) -> None:
        """Stop workers; called once, with the lock held."""

    def _cache_context(self) -> dict[str, object]:
        """What else, beside task, target, limits, seed and versions, can change a verdict."""
        return {}

    def evaluate(self, jobs: Iterable[EvaluationJob]) -> Iterator[tuple[EvaluationJob, Evaluation]]:
        """Judge `jobs`, `workers` at once, yielding in submission order.

        Raises `TaskError` before any candidate is run when the task itself is at fault: its reference fails, a
        constant output passes it, or its seed does not.
        """
        pool = ThreadPoolExecutor(max_workers=self._workers, thread_name_prefix="kernevo-judge")
        running: dict[str, Future[Evaluation]] = {}
        waiting: deque[tuple[EvaluationJob, Evaluation | Future[Evaluation]]] = deque()
        try:
            for job in jobs:
                waiting.append((job, self._admit(job.source, pool, running)))
                # Jobs are taken only as workers become free, so that a caller who stops giving them (Ctrl-C) waits for
                # those in flight and no longer.
                while len(busy := [future for future in running.values() if not future.done()]) >= self._workers:
                    yield from _ready(waiting)
                    wait(busy, return_when=FIRST_COMPLETED, timeout=_POLL_S)
                yield from _ready(waiting)
            for job, found in waiting:
                yield job, found if isinstance(found, Evaluation) else found.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _admit(
        self, source: KernelSource, pool: ThreadPoolExecutor, running: dict[str, Future[Evaluation]]
    ) -> Evaluation | Future[Evaluation]:
        """What is known of a source already, or the future of its verdict."""
        known = self._cached(source) or self._refused(source)
        # A seed that does not pass is the task's fault, which `_prepare` says.
        if known is not None and (known.status.passed or source.text != self._task.seed_source):
            return known
        self._prepare()
        if source.sha not in running:
            running[source.sha] = pool.submit(self._judge_and_keep, source)
        return running[source.sha]

    def _judge_and_keep(self, source: KernelSource) -> Evaluation:
        evaluation = self._judge(source)
        if self._cache:
            self._cache.put(source, evaluation)
        return evaluation

    def _refused(self, source: KernelSource) -> Evaluation | None:
        """The verdict of the static stage alone where it objects: no worker is needed to say so."""
        if not self._reads:
            return None
        static = static_stage(self._task)
        return self._walked(source, [("static", static)]) if static(Facts(source)) else None

    def close(self) -> None:
        """Stop workers and remove temporary files; safe to call twice."""
        with self._lock:
            self._closed = True
            self._release()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make_folder(self) -> Path:
        """The evaluator's temporary folder; made when it is first asked for."""
        if self._closed:
            raise RuntimeError("the evaluator is closed")
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="kernevo-"))
            self._folder.chmod(0o711)  # workers of another user pass through to their own folders
        return self._folder

    def _open_cache(self, settings: Mapping[str, Any]) -> VerdictCache:
        folder = settings.get("cache_dir")
        seed_sha = KernelSource(text=self._task.seed_source).sha if self._task.seed_source else None
        context = {
            "task": self._task.fingerprint,
            "baseline": seed_sha,
            "evaluator": [self.name, __version__, self.revision],
            "target": self._target,
            "seed": self._seed,
            "limits": self._limits.model_dump(),
            "versions": versions(),
            **self._cache_context(),
        }
        return VerdictCache(Path(folder).expanduser() if folder else default_folder(), context)

    def _cached(self, source: KernelSource) -> Evaluation | None:
        return self._cache.get(source) if self._cache else None

    def _walked(self, source: KernelSource, stages: Sequence[tuple[str, Stage]]) -> Evaluation:
        started = time.perf_counter()
        facts = Facts(source)
        verdict, records = walk([(name, stage) for name, stage in stages if self._reads or name != "static"], facts)
        if verdict.status is EvalStatus.HARNESS_ERROR:
            logger.error("%s: %s", self._task.name, verdict.reason)
        passed = verdict.status.passed
        return Evaluation(
            source_sha=source.sha,
            task=self._task.name,
            evaluator=self.name,
            status=verdict.status,
            reason=verdict.reason,
            explain=verdict.explain or verdict.reason,
            stages=records,
            timings=facts.timings if passed else {},
            profile=facts.profile if passed else None,
            checks_passed=facts.checks_passed,
            checks_total=facts.checks_total,
            max_error=facts.max_error,
            evaluator_version=f"{__version__}.{self.revision}",
            target=self._target,
            seconds=time.perf_counter() - started,
        )


def _ready(
    waiting: deque[tuple[EvaluationJob, Evaluation | Future[Evaluation]]],
) -> Iterator[tuple[EvaluationJob, Evaluation]]:
    """Take what is known from the front of the queue, in order."""
    while waiting:
        job, found = waiting[0]
        if isinstance(found, Future):
            if not found.done():
                return
            found = found.result()
        waiting.popleft()
        yield job, found


def versions() -> dict[str, str]:
    """Installed versions that can change a verdict, without importing them."""
    found = {}
    for name in ("torch", "triton", "numpy"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    return found
