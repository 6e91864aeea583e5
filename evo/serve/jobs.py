"""The queue: jobs wait here, threads take those of one task together and let its judge answer them."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from uuid import uuid4

from evaluator.errors import KernevoError, UsageError
from evaluator.foreign_host import JudgeLostError
from evaluator.types import Evaluation, KernelSource
from evo.serve.judges import JudgeCache
from evo.serve.records import DONE, EvaluationRequest, JobState

logger = logging.getLogger(__name__)

KEPT_ANSWERS = 1024
"""Finished jobs that can still be asked for; the oldest are forgotten first."""
_ATTEMPTS = 2
_LONGEST_RETRY_S = 60
_STOPPED = "the server stopped before it was judged"


class RefusedError(Exception):
    """A job that is not taken. `status` is the HTTP code, `retry_after` seconds, `fix` what to do."""

    def __init__(self, status: int, error: str, message: str, fix: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.error, self.message, self.fix, self.retry_after = status, error, message, fix, retry_after


@dataclass
class Job:
    """One kernel to judge, and what became of it. Fields change under the queue's lock only."""

    id: str
    request: EvaluationRequest
    source: KernelSource
    key: str
    """Of the judge that can judge it: its task, and how it is timed."""
    seconds: float
    """Limit on the time until its answer, counted from the one before it."""
    submitted: float = field(default_factory=time.time)
    state: JobState = "pending"
    evaluation: Evaluation | None = None
    error: str = ""
    error_code: str | None = None
    started: float | None = None
    completed: float | None = None
    attempts: int = 0
    done: Future[None] = field(default_factory=Future)


class JobQueue:
    """Takes jobs up to a bound and judges them in threads of its own. Thread-safe.

    Jobs of one task are judged by one thread at a time, up to `batch` of them together; `threads` tasks at once.
    """

    def __init__(self, judges: JudgeCache, *, bound: int, threads: int, batch: int, job_seconds: float) -> None:
        self._judges = judges
        self._bound, self._batch, self._job_seconds = bound, batch, job_seconds
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._busy: dict[str, list[Job]] = {}
        self._closing = False
        self._killed = False
        self._mean_s = 5.0
        self._began = time.time()
        self.verdicts: Counter[str] = Counter()
        """Finished jobs by verdict, and by state where there is none."""
        self.refused: Counter[str] = Counter()
        """Requests that were not taken, by reason."""
        self._threads = [
            threading.Thread(target=self._work, name=f"kernevo-serve-{index}", daemon=True) for index in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, request: EvaluationRequest) -> Job:
        """The job for a request: a new one, or that of the same request under the same name. Raises RefusedError."""
        task = request.foreign_task
        source = KernelSource(text=request.kernel)
        seconds = min(request.timeout or self._job_seconds, self._job_seconds)
        with self._changed:
            name = request.task_id or uuid4().hex
            if (known := self._jobs.get(name)) is not None:
                if known.request == request:
                    return known
                raise self._refuse(409, "task_id_taken", f"task_id {name} names another request", "use a new task_id")
            if self._closing:
                raise self._refuse(503, "stopping", "the server is stopping", "ask again once it is back", 10)
            if len(self._waiting) >= self._bound:
                wait = self._retry_after()
                message = f"{len(self._waiting)} jobs wait already, and no more may"
                raise self._refuse(429, "queue_full", message, f"ask again in {wait} s", wait)
            job = Job(name, request, source, f"{task.key} {request.timing}", seconds)
            self._jobs[name] = job
            self._waiting.append(job)
            self._forget_old()
            self._changed.notify_all()
            return job

    def find(self, name: str) -> Job:
        """The job of that name. Raises RefusedError."""
        with self._changed:
            job = self._jobs.get(name)
        if job is None:
            fix = f"names come from POST /evaluate; the last {KEPT_ANSWERS} answers are kept"
            raise RefusedError(404, "unknown_task_id", f"no job {name}", fix)
        return job

    def position(self, job: Job) -> int | None:
        """How many jobs wait before it; None when it does not wait."""
        with self._changed:
            return self._waiting.index(job) if job in self._waiting else None

    def cancel(self, job: Job) -> bool:
        """Take a waiting job out of the queue; False for one that is being judged or done."""
        with self._changed:
            if job not in self._waiting:
                return False
            self._waiting.remove(job)
            self._finish(job, "cancelled", error="cancelled by DELETE")
            return True

    def counts(self) -> dict[str, object]:
        """For /health and /metrics."""
        with self._changed:
            return {
                "uptime_s": round(time.time() - self._began, 3),
                "waiting": len(self._waiting),
                "running": sum(map(len, self._busy.values())),
                "queue_bound": self._bound,
                "stopping": self._closing,
                "judges_alive": len(self._judges),
                "judges_started": self._judges.started,
                "mean_job_s": round(self._mean_s, 3),
                "finished": dict(self.verdicts),
                "refused": dict(self.refused),
            }

    def count_refusal(self, error: str) -> None:
        """Count a request that was refused before it came here."""
        with self._changed:
            self.refused[error] += 1

    def drain(self, grace_s: float) -> None:
        """Take no more jobs, cancel those that wait, give running ones `grace_s` seconds, then kill them."""
        with self._changed:
            self._closing = True
            while self._waiting:
                self._finish(self._waiting.popleft(), "cancelled", error=_STOPPED)
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: not self._busy, timeout=grace_s):
                self._kill()
                self._changed.wait_for(lambda: not self._busy)

    def kill(self) -> None:
        """Do not wait for running jobs any longer."""
        with self._changed:
            self._kill()

    def close(self) -> None:
        """Stop at once and end all judges; safe to call twice."""
        self.drain(0.0)
        for thread in self._threads:
            thread.join()
        self._judges.close()

    def _kill(self) -> None:
        self._killed = True
        self._judges.end_busy()

    def _work(self) -> None:
        while (batch := self._take()) is not None:
            try:
                self._judge(batch)
            except Exception:  # a fault of this server's must not end the thread that everybody waits for
                logger.exception("judging failed")
                with self._changed:
                    for job in batch:
                        self._finish(job, "failed", error="the server failed; its log says why", code="SYSTEM_ERROR")
            with self._changed:
                del self._busy[batch[0].key]
                self._changed.notify_all()

    def _take(self) -> list[Job] | None:
        """The next jobs of one task that nobody judges; None when the server stops."""
        with self._changed:
            while True:
                first = next((job for job in self._waiting if job.key not in self._busy), None)
                if first is not None:
                    break
                if self._closing:
                    return None
                self._changed.wait()
            # What was lost once is tried alone, so that it can take nobody else's time with it.
            alike = [job for job in self._waiting if job.key == first.key and not job.attempts]
            batch = [first] if first.attempts else alike[: self._batch]
            for job in batch:
                self._waiting.remove(job)
                job.state, job.started = "processing", time.time()
                job.attempts += 1
            self._busy[first.key] = batch
            return batch

    def _judge(self, batch: list[Job]) -> None:
        key, request = batch[0].key, batch[0].request
        changes: dict[str, object] = {} if request.timing is None else {"timing": request.timing}
        left = deque(batch)
        try:
            judge = self._judges.borrow(key, lambda: (request.foreign_task, changes))
        except KernevoError as error:
            self._fail(left, error)
            return
        keep = False
        try:
            for evaluation in judge.judge([job.source for job in batch], [job.seconds for job in batch]):
                self._settle(left.popleft(), evaluation)
            keep = True
        except KernevoError as error:
            self._fail(left, error)
        except JudgeLostError as lost:
            self._lose(left, lost)
        finally:
            (self._judges.give_back if keep else self._judges.throw_away)(key)

    def _fail(self, jobs: Iterable[Job], error: KernevoError) -> None:
        """The task, or this machine, is at fault."""
        text = f"{error.message}; fix: {error.hint}" if error.hint else error.message
        code = "VALIDATION_ERROR" if isinstance(error, UsageError) else "SYSTEM_ERROR"
        with self._changed:
            for job in jobs:
                if self._killed:
                    self._finish(job, "cancelled", error=_STOPPED)
                self._finish(job, "failed", error=text, code=code)

    def _settle(self, job: Job, evaluation: Evaluation) -> None:
        with self._changed:
            job.evaluation = evaluation
            self._mean_s += 0.2 * (time.time() - (job.started or job.submitted) - self._mean_s)
            if evaluation.status.blames_harness:
                self._finish(job, "failed", error=evaluation.reason, code="SYSTEM_ERROR")
            else:
                self._finish(job, "completed")

    def _lose(self, left: deque[Job], lost: JudgeLostError) -> None:
        """The job that took too long is done; the others, which did nothing, are tried again."""
        with self._changed:
            if self._killed:
                while left:
                    self._finish(left.popleft(), "cancelled", error=_STOPPED)
            elif lost.timeout:
                self._finish(left.popleft(), "timeout", error=lost.reason, code="TIMEOUT_ERROR")
            for job in reversed(left):
                if job.attempts >= _ATTEMPTS:
                    self._finish(job, "failed", error=lost.reason, code="SYSTEM_ERROR")
                elif self._closing:
                    self._finish(job, "cancelled", error=_STOPPED)
                else:
                    job.state = "pending"
                    self._waiting.appendleft(job)

    def _finish(self, job: Job, state: JobState, error: str = "", code: str | None = None) -> None:
        if job.state in DONE:
            return
        job.state, job.error, job.error_code, job.completed = state, error, code, time.time()
        self.verdicts[str(job.evaluation.status) if job.evaluation else state] += 1
        job.done.set_result(None)

    def _refuse(self, status: int, error: str, message: str, fix: str, retry_after: int | None = None) -> RefusedError:
        self.refused[error] += 1
        return RefusedError(status, error, message, fix, retry_after)

    def _retry_after(self) -> int:
        seconds = self._mean_s * len(self._waiting) / (len(self._threads) * self._batch)
        return max(1, min(_LONGEST_RETRY_S, round(seconds)))

    def _forget_old(self) -> None:
        done = [name for name, job in self._jobs.items() if job.state in DONE]
        for name in done[: max(0, len(done) - KEPT_ANSWERS)]:
            del self._jobs[name]
