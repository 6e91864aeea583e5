"""From a run to one HTML file that needs no network and trusts nothing the run holds.

Every value passes `visible` (no character acts) and then autoescape; figures are JSON in inert script blocks; a
content security policy with a nonce lets only our own script run and nothing be fetched. plotly.js is embedded once,
gzipped (a third of its size) and unpacked by the browser; every figure also has its numbers as a table.
"""

from __future__ import annotations

import base64
import gzip
import json
import secrets
import shlex
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from evaluator import hardware
from evaluator.errors import EnvironmentUnusableError, KernevoError, UsageError
from evaluator.types import Task
from evo.candidate import Record
from evo.harvest import baseline_of, versions_of
from evo.interval import speedup_interval
from evo.report import figures
from evo.report.data import Findings, gather
from evo.report.figures import Figure
from evo.report.lineage import branches, source_text
from evo.report.text import clip, number, visible
from evo.report.training_figures import curves
from evo.report.tree import tree_of
from evo.run import Run, RunStatus

FILE = "report.html"
SHOWN_REASON = 300


def render(run: Run, out: Path | None = None) -> Path:
    """Write the report of `run` to `out` (`report.html` in the run when left out); returns the path.

    Raises EnvironmentUnusableError when the file cannot be written.
    """
    path = run.path / FILE if out is None else out
    if path.is_dir():
        raise UsageError(f"{path}: a folder, not a file", "give the path of the file to write, e.g. report.html")
    page = page_of(run)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentUnusableError(
            f"{path.parent}: cannot be made: {error.strerror}", "give another file with --out"
        ) from error
    run.dir.write_atomically(path, page)
    return path


@dataclass(frozen=True)
class Live:
    """What a page needs that follows its run."""

    version: int
    """Length of the journal in bytes that the page shows."""
    every: float
    """Seconds between two questions for news."""
    status: RunStatus


def page_of(run: Run, live: Live | None = None) -> str:
    """The whole page; one that is `live` asks its server for news and loads itself again."""
    findings = gather(run)
    elites = run.elites(run.config.elites)
    best = elites[0] if elites else None
    task, task_problem = _task(run)
    drawn = _figures(run, findings, best, task)
    shown = branches(run, elites)
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            run=run,
            live=live,
            findings=findings,
            elites=elites,
            best=best,
            seed=_seed(run),
            task=task,
            task_problem=task_problem,
            interval=speedup_interval(best.evaluation) if best else None,
            branches=shown,
            tree=tree_of(shown),
            best_source=_best_source(run, best),
            figures={figure.name: figure for figure in drawn},
            figure_json=htmlsafe_json_dumps(
                {figure.name: figure.spec for figure in drawn}, dumps=json.dumps, allow_nan=False
            ),
            baseline=baseline_of(best.evaluation.kind if best else None),
            versions=versions_of(run),
            commands=_commands(run, best),
            plotly=plotly_bundle() if drawn else "",
            nonce=secrets.token_urlsafe(16),
        )
    )


def _seed(run: Run) -> Record | None:
    """The task's own seed, which is born first and not always judged first."""
    return min(run.records(), key=lambda record: record.number, default=None)


def _task(run: Run) -> tuple[Task | None, str]:
    try:
        return run.task, ""
    except KernevoError as error:
        return None, error.message


def figures_of(run: Run) -> list[Figure]:
    """The figures of the page, in its order."""
    best = next(iter(run.elites(1)), None)
    return _figures(run, gather(run), best, _task(run)[0])


def _figures(run: Run, findings: Findings, best: Record | None, task: Task | None) -> list[Figure]:
    kind = best.evaluation.kind if best else None
    drawn: list[Figure | None] = []
    if findings.points:
        drawn += [figures.convergence(findings, kind), figures.by_the_clock(findings, kind)]
        drawn.append(figures.by_judging(findings, kind))
    if findings.stages:
        drawn.append(figures.funnel(findings))
    drawn.append(figures.pareto(findings.front))
    drawn.append(figures.archive(findings.cells, findings.descriptors))
    if best is not None:
        drawn.append(figures.terms(best))
        drawn.append(_roofline(run, best, task))
    return [figure for figure in (*drawn, *curves(findings.trainings)) if figure is not None]


def _roofline(run: Run, best: Record, task: Task | None) -> Figure | None:
    if task is None:
        return None
    try:
        gpu = hardware.get(best.evaluation.target)
    except KernevoError:
        return None  # a GPU that this version does not know has no roof to draw
    seed = _seed(run)
    records = {f"seed {seed.id}": seed} if seed and seed.passed and seed.id != best.id else {}
    return figures.roofline({**records, f"best {best.id}": best}, gpu, task.dtype)


def _best_source(run: Run, best: Record | None) -> str:
    if best is None:
        return ""
    text, problem = source_text(run, best.candidate.source_sha)
    return problem or clip(text, 200_000)


def _commands(run: Run, best: Record | None) -> list[tuple[str, str]]:
    """What to type next: (purpose, command)."""
    path = str(run.path)
    config = shlex.quote(str(run.dir.config_resolved))
    found = [("run it again", f"kernevo run {config} --name {shlex.quote(run.name + '-again')}")]
    if run.status in ("interrupted", "crashed"):
        found.insert(0, ("continue it", f"kernevo resume {shlex.quote(path)}"))
    if best is not None:
        stored = run.dir.kernels / f"{best.candidate.source_sha}.py"
        words = ["kernevo", "evaluate", str(stored), "--task", run.config.task]
        words += ["--target", best.evaluation.target] if best.evaluation.target else []
        found.append(("judge the best again", shlex.join(words)))
        found.append(("take the best out", f"kernevo harvest {shlex.quote(path)} --top 1 --out kernels"))
    return found


@lru_cache(maxsize=1)
def plotly_bundle() -> str:
    """plotly.js, gzipped and in base64. The same bytes every time."""
    code = resources.files("plotly").joinpath("package_data/plotly.min.js").read_bytes()
    return base64.b64encode(gzip.compress(code, 9, mtime=0)).decode("ascii")


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("evo.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters.update(number=number, clip=clip, reason=_reason, times=_times)
    return environment


def _finalize(value: Any) -> Any:
    """Applied to everything the templates print; only our own markup passes as it is."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _reason(text: str) -> str:
    line = text.split("\n", 1)[0]
    return line if len(line) <= SHOWN_REASON else line[:SHOWN_REASON] + " …"


def _times(value: float | None) -> str:
    """A speedup, e.g. `1.234x`."""
    shown = number(value, ".3f")
    return shown if value is None else f"{shown}x"
