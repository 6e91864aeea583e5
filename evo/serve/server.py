"""Starts and stops the server: settings to queue, socket, signals, the end."""

from __future__ import annotations

import ipaddress
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from evaluator import confine, sandbox
from evaluator.errors import EnvironmentUnusableError, UsageError
from evo.config import EvaluatorConfig, GpuEvaluatorConfig
from policy.reward import RewardSettings

if TYPE_CHECKING:
    from evo.serve.jobs import JobQueue

SHORTEST_TOKEN = 16
_MOST_TOGETHER = 64


@dataclass(frozen=True)
class ServeSettings:
    """What `kernevo serve` was asked for."""

    evaluator: EvaluatorConfig
    rewards: RewardSettings
    host: str
    port: int
    """0 takes a free one."""
    token: str | None
    queue: int
    concurrency: int
    tasks: int
    job_seconds: float
    grace_seconds: float
    max_source_bytes: int


def read_token(variable: str) -> str | None:
    """The token in an environment variable, which is taken out of it; None where it is unset. Raises UsageError.

    Neither the variable's content nor a part of it is ever repeated.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*", variable):
        raise UsageError("--token-env: no name of an environment variable", "give the name, and put the token into it")
    token = os.environ.pop(variable, "").strip()
    if not token:
        return None
    if len(token) < SHORTEST_TOKEN or not (token.isascii() and token.isprintable()) or " " in token:
        fix = "e.g. `python -c 'import secrets; print(secrets.token_urlsafe())'`"
        raise UsageError(f"${variable}: a token has {SHORTEST_TOKEN} or more visible ASCII characters", fix)
    return token


def require_token(host: str, token: str | None) -> None:
    """Raises UsageError for a server without a token that other machines could reach."""
    if token is None and not is_loopback(host):
        fix = "put a token into $KERNEVO_SERVE_TOKEN, or keep --host 127.0.0.1"
        raise UsageError(f"--host {host}: a server that other machines can reach needs a token", fix)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    with suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return host == "localhost"


def serve(settings: ServeSettings) -> int:
    """Serve until a signal. Returns the exit code: 0 after SIGTERM, 130 after Ctrl-C."""
    import uvicorn

    from evo.serve.app import Access, Judging, create_app

    require_token(settings.host, settings.token)
    with suppress(OSError):
        confine.prctl(confine.PR_SET_DUMPABLE, 0)  # nobody else of this user may read the token in our environment
    listening = _listen(settings.host, settings.port)
    walls = sandbox.capabilities()
    queue = make_queue(settings)
    try:
        judging = Judging(settings.evaluator.type, settings.evaluator.target, walls, settings.rewards)
        app = create_app(queue, Access(settings.token, settings.max_source_bytes), judging)
        config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="off")
        server = _stopping(uvicorn.Server, config, queue, settings.grace_seconds)
        _announce(settings, listening, walls)
        server.run(sockets=[listening])
    finally:
        queue.close()
    return 130 if server.stopped_by == signal.SIGINT else 0


def make_queue(settings: ServeSettings) -> JobQueue:
    """The queue with its judges; their common ancestor starts to import torch."""
    from evaluator.foreign_host import ForeignJudges
    from evo.serve.jobs import JobQueue
    from evo.serve.judges import JudgeCache

    chosen = settings.evaluator
    on_gpu = isinstance(chosen, GpuEvaluatorConfig)
    judges = JudgeCache(
        ForeignJudges(chosen.model_dump()),
        max(settings.tasks, settings.concurrency),
        on_gpu,
        isinstance(chosen, GpuEvaluatorConfig) and chosen.allow_busy,
    )
    together = min(_MOST_TOGETHER, chosen.workers or os.cpu_count() or 1)
    return JobQueue(
        judges,
        bound=settings.queue,
        threads=settings.concurrency,
        batch=together,
        job_seconds=settings.job_seconds,
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise EnvironmentUnusableError(
            f"{host}:{port}: cannot listen there: {reason}", "give another --port or --host; --port 0 takes a free one"
        ) from None


def _announce(settings: ServeSettings, listening: socket.socket, walls: dict[str, str]) -> None:
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    kind = "measured" if settings.evaluator.type == "gpu" else f"modelled for {settings.evaluator.target}"
    token = "token required" if settings.token else "no token, this machine only"
    lines = [f"serving on http://{shown}:{port} ({settings.evaluator.type} evaluator, latencies {kind}; {token})"]
    missing = {name: state for name, state in walls.items() if state != "on"}
    lines += [f"warning: no wall for {name}: {state}" for name, state in missing.items()]
    print("\n".join(lines), file=sys.stderr, flush=True)


def _stopping(base: Any, config: Any, queue: JobQueue, grace_s: float) -> Any:
    """A uvicorn server that answers what it has begun before it goes.

    The first signal stops new jobs, while answers can still be fetched; the second one ends the running jobs.
    """

    class Server(base):  # type: ignore[misc]  # uvicorn is imported late, so that it may be missing
        stopped_by: int | None = None

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            numbers = (signal.SIGINT, signal.SIGTERM)
            before = {number: signal.signal(number, self.handle_exit) for number in numbers}
            try:
                yield
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            # In threads, because the queue's lock may be held by the very code that the signal interrupted.
            if self.stopped_by is not None:
                threading.Thread(target=queue.kill, daemon=True).start()
                return
            self.stopped_by = sig
            print("stopping: running jobs are finished first (again to kill them)", file=sys.stderr, flush=True)
            threading.Thread(target=self._drain, daemon=True).start()

        def _drain(self) -> None:
            queue.drain(grace_s)
            self.should_exit = True

    return Server(config)
