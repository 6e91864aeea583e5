"""Finding the run a command means, and telling how a session on it ended."""

from __future__ import annotations

import difflib
import os.path
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from evaluator.errors import KernevoError, UsageError
from evo.cli import output

if TYPE_CHECKING:
    from evo.campaign import Campaign, CampaignResult

RUNS = Path("runs")


def find_run(spec: str) -> Path:
    """The run folder `spec` names: a path, or the name of a run under `runs/`. Raises UsageError."""
    path = Path(spec)
    if os.path.isdir(path):
        return path
    if os.path.isdir(RUNS / spec):
        return RUNS / spec
    names = [run.name for run in run_folders(RUNS)]
    near = difflib.get_close_matches(path.name, names, n=1)
    hint = f"did you mean {RUNS / near[0]}?" if near else "`kernevo status` lists the runs there are"
    raise UsageError(f"{spec}: no such run", hint)


def run_folders(folder: Path) -> list[Path]:
    """The folders in `folder` that hold a run, by name."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if (path / "journal.jsonl").is_file())


def resume_command(path: Path) -> str:
    """What to type to continue a run."""
    return f"kernevo resume {shlex.quote(str(path))}"


def session(campaign: Campaign, *, as_json: bool) -> None:
    """Run a campaign to its end, print what came of it, and leave with the exit code that says so.

    However the session is cut short, the last line is the command that resumes the run.
    """
    path = campaign.dir.path
    try:
        result = campaign.run()
    except UsageError:
        raise
    except (KernevoError, OSError, KeyboardInterrupt) as error:
        if not campaign.dir.journal.is_file():
            raise
        if isinstance(error, KeyboardInterrupt):
            output.note("\nkilled; every verdict up to here is recorded")
        else:
            output.note(f"error: {error}")
        output.note(f"resume with: {resume_command(path)}")
        raise typer.Exit(_exit_code(error)) from None
    if as_json:
        output.print_json(result_document(result))
    else:
        output.print_facts(result_facts(result))
    if result.interrupted:
        output.note(f"interrupted; everything judged is saved\nresume with: {resume_command(path)}")
        raise typer.Exit(130)
    if result.best is None:
        output.note(f"no correct kernel was found; `kernevo status {shlex.quote(str(path))}` shows the verdicts")
        raise typer.Exit(3)


def _exit_code(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return 130
    return error.exit_code if isinstance(error, KernevoError) else 1


def result_document(result: CampaignResult) -> dict[str, object]:
    """What `run --json` and `resume --json` print."""
    best = None
    if result.best is not None:
        source = result.run.dir.kernels / f"{result.best.candidate.source_sha}.py"
        best = {**output.record_facts(result.best), "path": str(source)}
    return {
        "run": str(result.run.path),
        "stopped": result.stopped,
        "interrupted": result.interrupted,
        "evaluations": len(result.run.records()),
        "best": best,
        "elites": [str(path) for path in _elite_files(result)],
        "report": _existing(result.run.path / "report.html"),
    }


def result_facts(result: CampaignResult) -> dict[str, object]:
    """What `run` and `resume` print for people."""
    records = result.run.records()
    facts: dict[str, object] = {
        "run": result.run.path,
        "stopped": result.stopped,
        "candidates": f"{len(records)} judged, {sum(record.passed for record in records)} correct",
        "best": "none",
    }
    if result.best is not None:
        facts["best"] = f"{result.best.id}  {output.speedup_text(result.best)}"
        facts["elites"] = "\n".join(str(path) for path in _elite_files(result)) or "none"
    elif records:
        first = records[0].evaluation
        facts["seed kernel"] = f"{first.status}: {first.reason}"
    report = _existing(result.run.path / "report.html")
    if report:
        facts["report"] = report
    return facts


def _elite_files(result: CampaignResult) -> list[Path]:
    folder = result.run.dir.elites
    return sorted(folder.glob("*.py")) if folder.is_dir() else []


def _existing(path: Path) -> str | None:
    return str(path) if path.is_file() else None
