"""`kernevo tasks list|show|check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from evo.cli import complete, output
from evo.cli.apps import new_app

if TYPE_CHECKING:
    from evaluator.types import Task, Workload

app = new_app(no_args_is_help=True, help="List, show and check tasks.")

_TaskArgument = Annotated[str, typer.Argument(help="A shipped task's name, or the path of a task folder.")]
_JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command("list")
def list_(
    suite: Annotated[
        str, typer.Argument(help="SUITE:PATH, e.g. kernelbench:PATH; the shipped tasks when left out.")
    ] = "",
    level: Annotated[int | None, typer.Option(help="Only problems of this level of KernelBench.")] = None,
    as_json: _JsonOption = False,
) -> None:
    """List the shipped tasks, or the problems of a suite."""
    from evaluator.task import list_tasks, load_task

    if suite:
        _list_suite(suite, level, as_json)
        return
    tasks = [load_task(name) for name in list_tasks()]
    if as_json:
        output.print_json({"tasks": [document_of(task) for task in tasks]})
        return
    rows = [(task.name, task.family, task.dtype, len(task.workloads), _first_line(task)) for task in tasks]
    output.print_table(("task", "family", "dtype", "workloads", "what it computes"), rows)


def _list_suite(suite: str, level: int | None, as_json: bool) -> None:
    from evaluator import loaders

    found = loaders.problems(suite, level)
    if as_json:
        output.print_json({"problems": [{"task": spec, "name": name} for spec, name in found]})
        return
    output.print_table(("task", "name"), found)


@app.command()
def show(
    task: _TaskArgument,
    as_json: _JsonOption = False,
    source: Annotated[bool, typer.Option("--source", help="Print the reference and the seed kernel too.")] = False,
) -> None:
    """Show one task: its workloads, check shapes, tolerance and rules."""
    from evaluator.task import load_task

    loaded = load_task(task)
    if as_json:
        sources = {"reference_source": loaded.reference_source, "seed_source": loaded.seed_source}
        output.print_json({**document_of(loaded), **(sources if source else {})})
        return
    output.print_facts(_facts(loaded))
    if source:
        print(f"\n# reference\n{loaded.reference_source}")
        print(f"\n# seed kernel\n{loaded.seed_source or '# none'}")


@app.command()
def check(
    task: Annotated[
        str,
        typer.Argument(help="A task, or SUITE:PATH for all problems of a suite.", autocompletion=complete.tasks),
    ],
    level: Annotated[int | None, typer.Option(help="Only problems of this level of KernelBench.")] = None,
) -> None:
    """Load a task and judge its seed kernel; exit code 2 when either is at fault.

    A task without a seed kernel, and every problem of a suite, is only loaded and looked at.
    """
    from evaluator import loaders
    from evaluator.errors import TaskError
    from evaluator.quarantine import reasons
    from evaluator.task import load_task

    if loaders.is_suite(task):
        _check_suite(task, level)
        return
    loaded = load_task(task)
    if loaded.seed_source is None:
        if found := reasons(loaded):
            raise TaskError(f"{loaded.origin}: quarantined: {'; '.join(found)}", "leave this task out")
        output.print_facts({"task": loaded.name, "seed kernel": "none", "quarantine": "no reason for it"})
        return
    _judge_seed(task)


def _judge_seed(task: str) -> None:
    from evo.cli.evaluate import judge

    evaluation = judge(task, None, target=None)
    facts = {
        "task": evaluation.task,
        "seed kernel": str(evaluation.status),
        "checks": f"{evaluation.checks_passed} of {evaluation.checks_total} passed",
        "latency": f"{evaluation.latency_ms:.4g} ms {evaluation.kind} ({evaluation.target})",
    }
    output.print_facts(facts)


def _check_suite(suite: str, level: int | None) -> None:
    """One row for each problem: ok, quarantined or refused, and why."""
    from evaluator import loaders
    from evaluator.errors import TaskError
    from evaluator.quarantine import reasons
    from evaluator.task import load_task

    rows = []
    for spec, _ in loaders.problems(suite, level):
        try:
            found = reasons(load_task(spec))
            rows.append((spec, "quarantined" if found else "ok", "; ".join(found)))
        except TaskError as error:
            rows.append((spec, "refused", error.message))
    output.print_table(("task", "state", "why"), rows)
    if any(state != "ok" for _, state, _ in rows):
        raise typer.Exit(2)


def _first_line(task: Task) -> str:
    return task.description.strip().split("\n")[0]


def _facts(task: Task) -> dict[str, object]:
    atomics = "allowed" if task.allow_atomics else "not allowed"
    return {
        "task": task.name,
        "what": task.description.strip(),
        "from": task.origin,
        "family": task.family,
        "dtype": task.dtype,
        "tolerance": f"atol {task.tolerance.atol:g}, rtol {task.tolerance.rtol:g}",
        "torch operators": task.op_policy,
        "atomics": atomics,
        "dot precision": ", ".join(task.input_precisions),
        "workloads": "\n".join(_shape(workload) for workload in task.workloads),
        "check shapes": "\n".join(_shape(shape) for shape in task.check_shapes),
        "seed kernel": "yes" if task.seed_source else "none",
    }


def _shape(workload: Workload) -> str:
    params = ", ".join(f"{key}={value}" for key, value in workload.params.items())
    least = [
        f"{value:,} {unit}"
        for value, unit in ((workload.bytes_moved, "bytes"), (workload.flops, "flops"))
        if value is not None
    ]
    return f"{workload.name}: {params}" + (f"  (at least {', '.join(least)})" if least else "")


def document_of(task: Task) -> dict[str, Any]:
    """What `tasks list --json` and `tasks show --json` say of a task."""
    kept = task.model_dump(mode="json", exclude={"reference_source", "seed_source"})
    return {**kept, "has_seed": task.seed_source is not None, "fingerprint": task.fingerprint}
