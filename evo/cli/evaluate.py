"""`kernevo evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evaluator.errors import HarnessError, TaskError, UsageError
from evo.cli import complete, output, verdict
from evo.cli.apps import new_app

if TYPE_CHECKING:
    from evaluator.types import Evaluation

app = new_app()


@app.command()
def evaluate(
    kernel: Annotated[Path, typer.Argument(help="Python file with ModelNew and its @triton.jit kernels.")],
    task: Annotated[
        str, typer.Option(help="A shipped task's name, or the path of a task folder.", autocompletion=complete.tasks)
    ],
    evaluator: Annotated[str, typer.Option(help="cpu models latencies, gpu measures them.")] = "cpu",
    target: Annotated[str | None, typer.Option(help="GPU to model latencies for; h200 when left out.")] = None,
    baseline: Annotated[str, typer.Option(help="gpu: best, eager, compile, max-autotune, seed or none.")] = "best",
    thorough: Annotated[
        bool, typer.Option("--thorough", help="gpu: compute-sanitizer and hardware counters too.")
    ] = False,
    cache: Annotated[bool, typer.Option("--cache/--no-cache", help="Accept a verdict judged earlier.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Judge one kernel file on a task.

    A new process runs the whole cascade. Exit code 0 says that the kernel passed, 3 that it is not correct, 4 that
    there is no GPU to measure on.
    """
    from evaluator import loaders

    source = loaders.as_kernel(task, output.read_kernel(kernel))
    evaluation = judge(
        task, source, target=target, cache=cache, evaluator=evaluator, baseline=baseline, thorough=thorough
    )
    if as_json:
        output.print_json(document_of(evaluation, kernel))
    else:
        _show(evaluation, kernel, thorough)
    if evaluation.status.blames_harness:
        raise HarnessError(f"{evaluation.status}: {evaluation.reason}", "`kernevo doctor` checks this machine")
    if not evaluation.status.passed:
        raise typer.Exit(3)


def judge(
    task: str,
    source: str | None,
    *,
    target: str | None,
    cache: bool = False,
    evaluator: str = "cpu",
    baseline: str = "best",
    thorough: bool = False,
) -> Evaluation:
    """Judge `source` (the task's seed when None) in a worker process of its own."""
    from evaluator import hardware
    from evaluator.task import load_task
    from evaluator.types import EvaluationJob, KernelSource

    loaded = load_task(task)
    text = loaded.seed_source if source is None else source
    if text is None:
        raise TaskError(f"{loaded.origin}: task {loaded.name} has no seed kernel", "add a seed.py to it")
    settings = _settings(evaluator, baseline, thorough)
    settings |= {"cache": cache} | ({} if target is None else {"target": hardware.get(target).name})
    from evaluator import backends

    job = EvaluationJob(job_id="evaluate", source=KernelSource(text=text))
    with backends.create(settings, loaded) as judging:
        ((_, evaluation),) = judging.evaluate([job])
    return evaluation


def _settings(evaluator: str, baseline: str, thorough: bool) -> dict[str, Any]:
    """The evaluator's settings for one kernel. Raises `UsageError` for a value that there is not."""
    if thorough and evaluator != "gpu":
        raise UsageError(f"--thorough: the {evaluator} evaluator has no thorough mode", "add --evaluator gpu")
    from pydantic import TypeAdapter, ValidationError

    from evo.config import EvaluatorConfig

    wanted: dict[str, Any] = {"type": evaluator, "workers": 1}
    if evaluator == "gpu":
        wanted |= {"device": 0, "baseline": baseline, "timing": "confirm", "thorough": thorough}
    try:
        return dict(TypeAdapter[Any](EvaluatorConfig).validate_python(wanted).model_dump())
    except ValidationError as error:
        first = error.errors()[0]
        where = str(first["loc"][-1]) if first["loc"] else "evaluator"
        raise UsageError(f"--{where}: {first['msg']}", "kernevo evaluate --help lists the values") from None


def document_of(evaluation: Evaluation, kernel: Path) -> dict[str, Any]:
    """What `evaluate --json` prints: the whole evaluation and its derived numbers."""
    derived = {"passed": evaluation.status.passed, "speedup": evaluation.speedup}
    latency = {"latency_ms": evaluation.latency_ms, "timing_kind": evaluation.kind}
    return {"kernel": str(kernel), **derived, **latency, "evaluation": evaluation.model_dump(mode="json")}


def _show(evaluation: Evaluation, kernel: Path, thorough: bool) -> None:
    output.print_facts({"kernel": kernel, "task": evaluation.task, **verdict.facts_of(evaluation)})
    verdict.print_tables(evaluation)
    if evaluation.explain and (thorough or not evaluation.status.passed):
        print(f"\n{evaluation.explain}")
