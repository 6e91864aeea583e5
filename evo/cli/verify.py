"""`kernevo verify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evaluator.errors import HarnessError
from evo.cli import output
from evo.cli.apps import new_app

if TYPE_CHECKING:
    from evo.verify import Verified

app = new_app()


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="Folder that `kernevo harvest` wrote.")],
    evaluator: Annotated[
        str | None, typer.Option(help="cpu models latencies, gpu measures them; as its run did when left out.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="GPU to model latencies for; h200 when left out.")] = None,
    baseline: Annotated[str, typer.Option(help="gpu: best, eager, compile, max-autotune, seed or none.")] = "best",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Judge the kernels of a harvest again.

    Each is judged anew, in a process of its own, on the task that lies beside it. Exit code 0 says that all passed, 3
    that one is not correct, 4 that there is no GPU to measure on.
    """
    from evo.cli.evaluate import judge
    from evo.verify import verify as judged_again

    found = judged_again(
        folder,
        evaluator,
        lambda task, source, kind: judge(task, source, target=target, evaluator=kind, baseline=baseline),
    )
    if as_json:
        output.print_json({"folder": str(folder), "kernels": [document_of(one) for one in found]})
    else:
        rows = [_row(one) for one in found]
        output.print_table(("kernel", "verdict", "speedup then", "speedup now", "now / then", "file"), rows)
    for one in found:
        if one.evaluation.status.blames_harness:
            raise HarnessError(f"{one.file}: {one.evaluation.reason}", "`kernevo doctor` checks this machine")
    for one in found:
        if not one.passed:
            output.note(f"{one.file}: {one.evaluation.status}: {one.evaluation.reason}")
    if not all(one.passed for one in found):
        raise typer.Exit(3)


def document_of(one: Verified) -> dict[str, Any]:
    """One kernel of `verify --json`."""
    return {
        "file": one.file,
        "passed": one.passed,
        "changed": one.changed,
        "speedup_before": one.speedup_before,
        "kind_before": one.kind_before,
        "speedup": one.evaluation.speedup,
        "timing_kind": one.evaluation.kind,
        "ratio": one.ratio,
        "evaluation": one.evaluation.model_dump(mode="json"),
    }


def _row(one: Verified) -> tuple[str, ...]:
    then = "-" if one.speedup_before is None else f"{one.speedup_before:.3f}x {one.kind_before}"
    now = one.evaluation.speedup
    return (
        one.file,
        str(one.evaluation.status),
        then,
        "-" if now is None else f"{now:.3f}x {one.evaluation.kind}",
        "-" if one.ratio is None else f"{one.ratio:.3f}",
        "changed since it was harvested" if one.changed else "as harvested",
    )
