"""The routes. Paths and the meaning of `status` are KernelGYM's, so that its clients can ask this server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from evaluator.version import __version__
from evo.serve.answers import answer_of
from evo.serve.guard import Guard
from evo.serve.jobs import Job, JobQueue, RefusedError
from evo.serve.records import DONE, Answer, EvaluationRequest, Status
from policy.reward import RewardSettings

_SOURCES = 4
_ESCAPED = 6  # bytes that JSON takes for one of a source's at most
_BESIDE_BYTES = 64 << 10
LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Access:
    """Who may ask, and how much."""

    token: str | None = None
    max_source_bytes: int = 100_000
    hosts: tuple[str, ...] = LOCAL_HOSTS
    """Names that a request may call this server by; without a token a web page could reach it by another."""


@dataclass(frozen=True)
class Judging:
    """What /health says of the judges."""

    evaluator: str
    target: str
    walls: Mapping[str, str] = field(default_factory=dict)
    rewards: RewardSettings = field(default_factory=RewardSettings)


def create_app(queue: JobQueue, access: Access, judging: Judging) -> FastAPI:
    """The application; the queue is its owner's to close."""
    app = FastAPI(title="kernevo serve", version=__version__, docs_url=None, redoc_url=None)
    _add_routes(app, queue, access, judging)
    _add_errors(app, queue)
    limit = _SOURCES * _ESCAPED * access.max_source_bytes + _BESIDE_BYTES
    if access.token is None:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(access.hosts))
    app.add_middleware(Guard, token=access.token, max_bytes=limit, refused=queue.count_refusal)
    return app


def _add_routes(app: FastAPI, queue: JobQueue, access: Access, judging: Judging) -> None:
    def said(job: Job) -> Answer:
        return answer_of(job, judging.rewards)

    @app.post("/evaluate", response_model=Answer)
    async def evaluate(request: EvaluationRequest, wait: bool = True) -> Any:
        """Judge a kernel and answer with the verdict; with `?wait=false` answer 202 with the job's name at once."""
        if request.source_bytes > access.max_source_bytes:
            message = f"a source is larger than {access.max_source_bytes} bytes"
            queue.count_refusal("too_large")
            raise RefusedError(413, "too_large", message, "send shorter sources, or see --max-source-kb")
        job = queue.submit(request)
        if not wait:
            return JSONResponse(said(job).model_dump(mode="json"), 202)
        await asyncio.shield(asyncio.wrap_future(job.done))
        return said(job)

    @app.get("/status/{task_id}", response_model=Status)
    async def status(task_id: str) -> Any:
        """How far a job is."""
        job = queue.find(task_id)
        return Status(
            task_id=job.id, status=job.state, queue_position=queue.position(job), error_message=job.error or None
        )

    @app.get("/results/{task_id}", response_model=Answer)
    async def results(task_id: str) -> Any:
        """A job's answer; 202 while there is none."""
        job = queue.find(task_id)
        return JSONResponse(said(job).model_dump(mode="json"), 200 if job.state in DONE else 202)

    @app.delete("/tasks/{task_id}", response_model=Status)
    async def cancel(task_id: str) -> Any:
        """Take a job back that nobody has begun to judge."""
        job = queue.find(task_id)
        if not queue.cancel(job):
            raise RefusedError(
                409, "not_waiting", f"job {task_id} is {job.state}", "only waiting jobs can be cancelled"
            )
        return Status(task_id=job.id, status=job.state, error_message=job.error)

    @app.get("/health")
    async def health() -> Any:
        """Whether jobs are taken; needs no token."""
        stopping = bool(queue.counts()["stopping"])
        return JSONResponse({"status": "stopping" if stopping else "healthy"}, 503 if stopping else 200)

    @app.get("/metrics")
    async def metrics() -> Any:
        """Counts since the start, and what judges."""
        about = {"evaluator": judging.evaluator, "target": judging.target, "walls": dict(judging.walls)}
        return {"version": __version__, **about, "reward": judging.rewards.model_dump(), **queue.counts()}


def _add_errors(app: FastAPI, queue: JobQueue) -> None:
    """Every error has the same three fields: error, message, fix."""

    @app.exception_handler(RefusedError)
    async def refused(request: Request, error: RefusedError) -> JSONResponse:
        headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
        return _error(error.status, error.error, error.message, error.fix, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        if first["type"] == "json_invalid":
            queue.count_refusal("invalid_json")
            message = f"the body is no JSON: {first.get('ctx', {}).get('error', first['msg'])} at character {where}"
            return _error(400, "invalid_json", message, "send one JSON object with Content-Type: application/json")
        queue.count_refusal("invalid_request")
        said = str(first["msg"]).removeprefix("Value error, ")
        message = f"{where}: {said}" if where else said
        return _error(422, "invalid_request", message, "docs/commands/serve.md lists every field")

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> JSONResponse:
        fix = "POST /evaluate, GET /status/ID, /results/ID, /health, /metrics, DELETE /tasks/ID"
        return _error(error.status_code, "http_error", str(error.detail), fix)


def _error(status: int, error: str, message: str, fix: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": error, "message": message, "fix": fix}, status, dict(headers or {}))
