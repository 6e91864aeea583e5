"""Progress on stderr: a live line on a terminal, one plain line per generation otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from evo.candidate import Record
from evo.events import Finalists
from evo.monitors.base import Step


class ConsoleMonitor:
    """Shows evaluations done, the best speedup with its kind, and what the last batch was."""

    def __init__(self, task: str, budget_evaluations: int | None, done: int = 0) -> None:
        self._console = Console(stderr=True)
        self._best = "no correct candidate yet"
        self._progress: Progress | None = None
        if self._console.is_terminal:
            self._progress = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[best]}"),
                console=self._console,
            )
            self._row = self._progress.add_task(task, total=budget_evaluations, completed=done, best=self._best)
            self._progress.start()

    def candidate(self, record: Record) -> None:
        """Advance the bar."""
        if self._progress is not None:
            self._progress.advance(self._row)

    def step(self, step: Step) -> None:
        """One line per generation."""
        self._best = best_of(step)
        if self._progress is not None:
            self._progress.update(self._row, completed=step.evaluations, best=self._best)
        more = [islands_line(step)] * bool(step.islands) + [credits_line(step)] * bool(step.credits)
        for line in [line_of(step), *more]:
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def policy(self, summary: Mapping[str, Any]) -> None:
        """One line for each policy that keeps count."""
        several = all(isinstance(value, Mapping) for value in summary.values())
        for name, counts in summary.items() if several else [("policy", summary)]:
            self._console.print(policy_line(name, counts), highlight=False, markup=False, soft_wrap=True)

    def finalists(self, finalists: Finalists) -> None:
        """One line."""
        self._console.print(finalists_line(finalists), highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Give the terminal back; safe to call twice."""
        if self._progress is not None:
            self._progress.stop()


def best_of(step: Step) -> str:
    """`best 1.83x modelled (c000012, 0.071 ms)`."""
    if step.best_speedup is None:
        return "no correct candidate yet"
    latency = f", {step.best_latency_ms:.4g} ms" if step.best_latency_ms is not None else ""
    return f"best {step.best_speedup:.3f}x {step.timing_kind} ({step.best}{latency})"


def line_of(step: Step) -> str:
    """The plain line of one generation."""
    budget = f"/{step.budget_evaluations}" if step.budget_evaluations else ""
    failures = ", ".join(f"{count} {name}" for name, count in step.verdicts.items() if name != "passed")
    return (
        f"generation {step.generation:3d}  evaluations {step.evaluations}{budget}  "
        f"passed {step.passed}/{step.batch}  {best_of(step)}  structures {step.structures}  "
        f"cells {step.cells} ({step.coverage:.1%})  {step.seconds:.0f} s" + (f"  [{failures}]" if failures else "")
    )


def finalists_line(finalists: Finalists) -> str:
    """`8 finalists timed again: best 1.783x measured (c000012), 1.830x before`."""
    best = "none is correct" if finalists.best is None else f"best {finalists.best_speedup or 0.0:.3f}x measured"
    name = f" ({finalists.best})" if finalists.best else ""
    return f"{len(finalists.timed)} finalists timed again: {best}{name}, {finalists.best_before:.3f}x before"


def islands_line(step: Step) -> str:
    """`islands  0 open 1.830x, 4 kept  1 memory 1.710x, 4 kept, restarts 1 …`."""
    parts = []
    for number, island in enumerate(step.islands):
        best = f"{island.best_speedup:.3f}x" if island.best_speedup is not None else "nothing correct"
        again = f", restarts {island.restarts}" if island.restarts else ""
        parts.append(f"{number} {island.strategy} {best}, {len(island.members)} kept{again}")
    return f"    islands  {'  '.join(parts)}"


def credits_line(step: Step) -> str:
    """`operators  tune 12 judged, gain 0.310  rewrite/rule 12 judged, gain 0.412`; gains are sums of log speedups."""
    parts = [f"{arm} {credit.tried} judged, gain {credit.gain:.3f}" for arm, credit in step.credits.items()]
    return f"    operators  {'  '.join(parts)}"


def policy_line(name: str, counts: Mapping[str, Any]) -> str:
    """`policy: 40 answers asked for, 38 answered, 31 proposed …`; what did not happen is left out."""
    words = {"asked": "answers asked for", "answered": "answered", "proposed": "proposed", "repaired": "repaired"}
    words |= {"duplicates": "duplicates", "unchanged": "unchanged"}
    parts = [f"{counts[key]} {text}" for key, text in words.items() if counts.get(key)]
    for group in ("unusable", "failures", "fallbacks"):
        reasons = ", ".join(f"{count} {reason}" for reason, count in counts.get(group, {}).items())
        parts += [f"{group}: {reasons}"] * bool(reasons)
    calls = ", ".join(f"{used['calls']} {tool}" for tool, used in counts.get("tools", {}).items() if used["calls"])
    parts += [f"tools: {calls}"] * bool(calls)
    tokens = counts.get("prompt_tokens", 0) + counts.get("completion_tokens", 0)
    parts += [f"{tokens} tokens"] * bool(tokens)
    parts += [f"${counts['dollars']:.4f}"] * bool(counts.get("dollars"))
    return f"{name}: {'; '.join(parts) or 'asked nothing'}"
