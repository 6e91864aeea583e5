"""Judges for tests of the server: they answer at once, or when they are told to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from evaluator.foreign_host import JudgeLostError
from evaluator.types import EvalStatus, Evaluation, KernelSource, Profile, Timing
from evo.serve.app import Access, Judging, create_app
from evo.serve.jobs import JobQueue
from evo.serve.judges import JudgeCache
from policy.reward import RewardSettings

GOOD, WRONG, HACK = "# good", "# wrong", "# hack"
REFERENCE = "class Model: ..."


def verdict(source: KernelSource) -> Evaluation:
    """What the first line says."""
    status = {GOOD: EvalStatus.PASSED, HACK: EvalStatus.FALLBACK}.get(
        source.text.splitlines()[0], EvalStatus.WRONG_VALUE
    )
    timing = Timing(
        kind="measured", median_ms=0.5, baseline_ms=1.0, ratio=2.0, ratio_low=1.9, ratio_high=2.1, baseline="eager"
    )
    passed = status.passed
    return Evaluation(
        source_sha=source.sha,
        task="foreign",
        evaluator="gpu",
        status=status,
        reason="" if passed else "not right",
        explain="explained",
        timings={"only": timing} if passed else {},
        profile=Profile(kind="measured", target="H200", coverage=0.75) if passed else None,
    )


class FakeJudges:
    """Starts fake judges. While `gate` is clear they wait, and `waiting` is set; `behave` may raise or answer."""

    def __init__(self, behave: Callable[[KernelSource], Evaluation] = verdict) -> None:
        self.behave = behave
        self.gate, self.waiting = threading.Event(), threading.Event()
        self.gate.set()
        self.started: list[tuple[object, dict[str, object]]] = []
        self.closed: list[object] = []
        self.batches: list[list[str]] = []
        self.ended = False

    def start(self, task, **changes):
        self.started.append((task, changes))
        return FakeJudge(self, task)

    def close(self) -> None:
        self.ended = True


class FakeJudge:
    def __init__(self, judges: FakeJudges, task: object) -> None:
        self.judges, self.task, self.killed = judges, task, False

    def judge(self, sources, seconds) -> Iterator[Evaluation]:
        self.judges.batches.append([source.text for source in sources])
        for source in sources:
            self.judges.waiting.set()
            self.judges.gate.wait()
            if self.killed:
                raise JudgeLostError("killed")
            yield self.judges.behave(source)

    def end(self) -> None:
        self.killed = True
        self.judges.gate.set()

    def close(self) -> None:
        self.judges.closed.append(self.task)


def make_queue(judges: FakeJudges, *, bound=8, threads=1, batch=4, most=2, on_gpu=False) -> JobQueue:
    return JobQueue(JudgeCache(judges, most, on_gpu), bound=bound, threads=threads, batch=batch, job_seconds=300.0)


def make_app(queue: JobQueue, token: str | None = None, max_source_bytes=2000, rewards=None):
    access = Access(token=token, max_source_bytes=max_source_bytes)
    return create_app(queue, access, Judging("gpu", "h200", {}, rewards or RewardSettings()))


@contextmanager
def listening(app) -> Iterator[str]:
    """The URL of the app while it is served by a thread."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as bound:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
