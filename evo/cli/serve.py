"""`kernevo serve`."""

from __future__ import annotations

import importlib.util
from typing import Annotated

import typer

from evaluator.errors import EnvironmentUnusableError, UsageError
from evo.cli.apps import new_app

app = new_app()


@app.command()
def serve(
    evaluator: Annotated[str, typer.Option(help="cpu models latencies, gpu measures them.")] = "cpu",
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a key of evaluator or reward, e.g. evaluator.workers=2."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; others than loopback need a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    token_env: Annotated[
        str, typer.Option(metavar="NAME", help="Environment variable with the token.")
    ] = "KERNEVO_SERVE_TOKEN",
    queue: Annotated[int, typer.Option(min=1, help="Jobs that may wait; more are answered 429.")] = 256,
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="Tasks judged at once.")] = 2,
    tasks: Annotated[int, typer.Option(min=1, max=256, help="Tasks whose judges are kept alive.")] = 4,
    job_timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="Longest that one job may take.")
    ] = 300.0,
    grace: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="For running jobs when it stops.")] = 30.0,
    max_source_kb: Annotated[int, typer.Option(min=1, max=10_000, help="Longest source, in kB.")] = 100,
) -> None:
    """Judge kernels over HTTP, as the environment of a trainer.

    The reference that a request brings is run behind the same walls as the kernel, never in this process. Ctrl-C or
    SIGTERM finish the running jobs; a second one kills them.
    """
    for module in ("fastapi", "uvicorn"):
        if importlib.util.find_spec(module) is None:
            raise EnvironmentUnusableError(f"{module} is not installed", "pip install 'kernevo[serve]'")
    from evo.serve import server
    from evo.serve.settings import judging_settings

    token = server.read_token(token_env)
    server.require_token(host, token)
    judge, rewards = judging_settings(evaluator, overrides or [])
    if max(tasks, concurrency) > tasks:
        raise UsageError(f"--tasks {tasks}: fewer than --concurrency {concurrency}", "keep a judge for each at least")
    settings = server.ServeSettings(
        evaluator=judge,
        rewards=rewards,
        host=host,
        port=port,
        token=token,
        queue=queue,
        concurrency=concurrency,
        tasks=tasks,
        job_seconds=job_timeout,
        grace_seconds=grace,
        max_source_bytes=max_source_kb * 1000,
    )
    raise typer.Exit(server.serve(settings))
