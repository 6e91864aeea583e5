"""`kernevo status`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evaluator.errors import KernevoError, UsageError
from evo.cli import output
from evo.cli.apps import new_app
from evo.cli.runs import RUNS, find_run, resume_command, run_folders

if TYPE_CHECKING:
    from evo.run import Run

app = new_app()


@app.command()
def status(
    run: Annotated[str | None, typer.Argument(help="A run, or a folder of runs; runs/ when left out.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show one run, or all runs of a folder.

    Reads only, so it may be called beside a running campaign.
    """
    folder = RUNS if run is None else find_run(run)
    if (folder / "journal.jsonl").is_file():
        _show_run(folder, as_json)
        return
    runs = run_folders(folder)
    if not runs and run is not None:
        raise UsageError(f"{folder}: holds no run", "give a run folder, or a folder that holds runs")
    _show_folder(folder, runs, as_json)


def _show_folder(folder: Path, paths: list[Path], as_json: bool) -> None:
    documents = [_overview(path) for path in paths]
    if as_json:
        output.print_json({"folder": str(folder), "runs": documents})
        return
    if not documents:
        output.note(f"{folder}: no runs yet; `kernevo run quickstart` makes the first")
        return
    columns = ("run", "status", "task", "evaluations", "correct", "best speedup")
    rows = [
        (doc["run"], doc["status"], doc["task"], doc["evaluations"], doc["correct"], _best_text(doc["best"]))
        for doc in documents
    ]
    output.print_table(columns, rows)


def _overview(path: Path) -> dict[str, Any]:
    """One run's document; a damaged run is reported in its place instead of hiding the others."""
    from evo.run import Run

    try:
        return document_of(Run.load(path))
    except KernevoError as error:
        damaged = {"status": "damaged", "task": "", "evaluations": None, "correct": None, "best": None}
        return {"run": str(path), **damaged, "error": error.message}


def document_of(run: Run) -> dict[str, Any]:
    """What `status --json` says of one run."""
    records = run.records()
    elites = run.elites(1)
    generations = run.generations()
    return {
        "run": str(run.path),
        "status": run.status,
        "task": run.started.task,
        "evaluations": len(records),
        "correct": sum(record.passed for record in records),
        "generations": len(generations),
        "seconds": generations[-1].seconds if generations else 0.0,
        "verdicts": dict(Counter(str(record.evaluation.status) for record in records).most_common()),
        "best": output.record_facts(elites[0]) if elites else None,
    }


def _best_text(best: dict[str, Any] | None) -> str:
    if best is None:
        return "-"
    if best["speedup"] is None:
        return "no baseline"
    return f"{best['speedup']:.3f}x {best['timing_kind']} ({best['target']})"


def _show_run(path: Path, as_json: bool) -> None:
    from evo.run import Run

    run = Run.load(path)
    document = document_of(run)
    if as_json:
        output.print_json(document)
        return
    facts: dict[str, object] = {
        "run": path,
        "status": document["status"],
        "task": document["task"],
        "generations": document["generations"],
        "candidates": f"{document['evaluations']} judged, {document['correct']} correct",
        "time": f"{document['seconds']:.0f} s",
        "verdicts": "\n".join(f"{count:5d}  {verdict}" for verdict, count in document["verdicts"].items()) or "none",
    }
    output.print_facts(facts)
    elites = run.elites(5)
    if elites:
        print()
        rows = [
            (record.id, output.speedup_text(record), record.candidate.operator, _steps(record)) for record in elites
        ]
        output.print_table(("elite", "speedup over the baseline, latency", "operator", "rewrites"), rows)
    if document["status"] in ("interrupted", "crashed"):
        output.note(f"resume with: {resume_command(path)}")


def _steps(record: Any) -> str:
    return " → ".join(step.name for step in record.candidate.rewrites) or "-"
