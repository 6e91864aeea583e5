"""`kernevo compare`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evo.cli import complete, output
from evo.cli.apps import new_app
from evo.cli.runs import find_run

if TYPE_CHECKING:
    from evo.compare import Comparison, Difference, Side

app = new_app()


@app.command()
def compare(
    first: Annotated[
        str,
        typer.Argument(metavar="RUN_A", help="A run folder, or its name under runs/.", autocompletion=complete.runs),
    ],
    second: Annotated[
        str, typer.Argument(metavar="RUN_B", help="The run to compare it with.", autocompletion=complete.runs)
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say which of two runs was better, and by how much.

    And whether that is more than noise. Runs of another task, hardware, baseline or kind of latency are refused.
    Exit code 3: neither holds a correct kernel.
    """
    paths = find_run(first), find_run(second)
    from evo.compare import compare as compared
    from evo.run import Run

    found = compared(Run.load(paths[0]), Run.load(paths[1]))
    for warning in found.warnings:
        output.note(f"warning: {warning}")
    if as_json:
        output.print_json(document_of(found))
    else:
        output.print_facts({"better": _better(found), "noise": _noise(found)})
        print()
        names = [str(side.run.path) for side in found.sides]
        output.print_table(("", *names), _rows(found))
    if all(side.best is None for side in found.sides):
        raise typer.Exit(3)


def _better(found: Comparison) -> str:
    better, difference = found.better, found.difference
    if better is None:
        return "neither: no correct kernel in either" if difference is None else "neither: their best are alike"
    if difference is None:
        return f"{better.run.path}: the other run holds no correct kernel"
    words = f"{better.run.path}, its best kernel is {_factor(difference):.3f}x as fast"
    interval = difference.interval
    if interval is None:
        return f"{words}, {found.kind}"
    low, high = interval if difference.log_ratio > 0 else (1 / interval[1], 1 / interval[0])
    return f"{words}, {found.kind} (95 % interval {low:.3f} to {high:.3f})"


def _factor(difference: Difference) -> float:
    return math.exp(abs(difference.log_ratio))


def _noise(found: Comparison) -> str:
    difference = found.difference
    if difference is None:
        return "nothing to compare"
    if difference.exceeds_noise is None:
        return f"cannot be told: {difference.basis}"
    if difference.log_ratio == 0:
        return f"no difference ({difference.basis})"
    verdict = "the difference exceeds the noise" if difference.exceeds_noise else "the difference is within the noise"
    return f"{verdict} ({difference.basis})"


def _rows(found: Comparison) -> Iterator[tuple[str, str, str]]:
    first, second = found.sides
    for name, read in _FACTS.items():
        yield name, read(first), read(second)
    yield "archive cells", _cells(first, second), _cells(second, first)
    yield from _counts("reached", *({stage.name: stage.reached for stage in side.stages} for side in found.sides))
    yield from _counts("verdict", *({said.status: said.count for said in side.verdicts} for side in found.sides))


def _counts(what: str, one: Mapping[str, int], two: Mapping[str, int]) -> Iterator[tuple[str, str, str]]:
    for name in dict.fromkeys([*one, *two]):
        yield f"{what} {name}", str(one.get(name, 0)), str(two.get(name, 0))


def _best(side: Side) -> str:
    return "no correct kernel" if side.best is None else f"{side.best.id}  {output.speedup_text(side.best)}"


def _count(count: int | None) -> str:
    return "never" if count is None else str(count)


def _cells(side: Side, other: Side) -> str:
    return f"{len(side.cells)}, {len(side.cells - other.cells)} of them not in the other"


_FACTS: dict[str, Callable[[Side], str]] = {
    "status": lambda side: side.status,
    "best": _best,
    "judged": lambda side: f"{side.evaluations}, {side.correct} correct",
    "time": lambda side: f"{side.seconds:.0f} s",
    "evaluations to 95 % of its own best": lambda side: _count(side.to_own),
    "evaluations to 95 % of the better best": lambda side: _count(side.to_best),
    "QD-score": lambda side: f"{side.qd_score:.3f}",
}


def document_of(found: Comparison) -> dict[str, Any]:
    """What `compare --json` says."""
    difference = found.difference
    interval = difference.interval if difference else None
    return {
        "runs": [_side_document(side) for side in found.sides],
        "task": found.sides[0].run.started.task,
        "timing_kind": found.kind,
        "better": str(found.better.run.path) if found.better else None,
        "quantity": difference.quantity if difference else None,
        "log_ratio": difference.log_ratio if difference else None,
        "ratio": math.exp(difference.log_ratio) if difference else None,
        "interval": list(interval) if interval else None,
        "exceeds_noise": difference.exceeds_noise if difference else None,
        "basis": difference.basis if difference else None,
        "shared_programs": found.shared,
        "warnings": list(found.warnings),
    }


def _side_document(side: Side) -> dict[str, Any]:
    return {
        "run": str(side.run.path),
        "status": side.status,
        "evaluations": side.evaluations,
        "correct": side.correct,
        "best": output.record_facts(side.best) if side.best else None,
        "evaluations_to_95_of_own_best": side.to_own,
        "evaluations_to_95_of_better_best": side.to_best,
        "cells": sorted(side.cells),
        "qd_score": side.qd_score,
        "seconds": side.seconds,
        "reached": {stage.name: stage.reached for stage in side.stages},
        "verdicts": {verdict.status: verdict.count for verdict in side.verdicts},
    }
