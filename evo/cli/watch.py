"""`kernevo watch`."""

from __future__ import annotations

import importlib.util
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from evaluator.errors import EnvironmentUnusableError, UsageError
from evo.cli import complete, output
from evo.cli.apps import new_app
from evo.cli.runs import find_run

app = new_app()


@app.command()
def watch(
    run: complete.RunArgument,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How often to look for news.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show the run as it is now, and end.")] = False,
    web: Annotated[bool, typer.Option("--web", help="Serve the report to a browser; it follows the run.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of --web on 127.0.0.1; 0 takes a free one.")] = 8080,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document, and end.")] = False,
) -> None:
    """Follow a run while it goes on.

    Reads only, so it may run beside a campaign, and shows a finished, interrupted or crashed run as well. It ends with
    the run's session; Ctrl-C ends it sooner and leaves the run alone.
    """
    folder = find_run(run)
    if web:
        if once or as_json:
            raise UsageError("--web: serves until Ctrl-C", "leave out --once and --json")
        _serve(folder, every, port)
        return
    from evo.watch import terminal, view
    from evo.watch.state import Watcher

    watcher = Watcher(folder)
    if not (once or as_json):
        with suppress(KeyboardInterrupt):
            terminal.watch(watcher, every)
        return
    watcher.refresh()
    if as_json:
        output.print_json(document_of(watcher))
    else:
        from rich.console import Console

        Console().print(view.view(watcher))


def _serve(folder: Path, every: float, port: int) -> None:
    for module in ("starlette", "uvicorn"):
        if importlib.util.find_spec(module) is None:
            raise EnvironmentUnusableError(f"{module} is not installed", "pip install 'kernevo[serve]'")
    from evo.watch.web import serve

    with suppress(KeyboardInterrupt):
        serve(folder, max(every, 2.0), port)


def document_of(watcher: Any) -> dict[str, Any]:
    """What `watch --json` says; `watcher` is an `evo.watch.state.Watcher`."""
    state = watcher.state
    return {
        "run": str(watcher.dir.path),
        "status": watcher.status,
        "task": state.started.task if state.started else watcher.config.task,
        "generations": state.generations,
        "evaluations": state.judged,
        "budget_evaluations": watcher.config.budget.evaluations,
        "correct": state.correct,
        "waiting": state.born - state.judged,
        "seconds": state.seconds,
        "cells": state.cells,
        "verdicts": {str(status): count for status, count in state.verdicts.most_common()},
        "operators": {
            name: {"tried": one.tried, "correct": one.correct, "best_speedup": one.best}
            for name, one in state.operators.items()
        },
        "best": output.record_facts(state.best) if state.best else None,
        "finalists": state.finalists.model_dump(mode="json") if state.finalists else None,
        "improvements": [list(point) for point in state.rise],
        "latest": [output.record_facts(record) for record in state.latest],
        "gpu_seconds": state.spending.gpu_seconds,
        "tokens": state.spending.tokens,
        "dollars": state.spending.dollars,
        "trainings": state.trainings,
    }
