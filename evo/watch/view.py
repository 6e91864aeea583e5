"""The state of a run as something rich can show. Text of a run is shown, never obeyed."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from evo.candidate import Record
from evo.cli.output import speedup_text
from evo.monitors.console import finalists_line
from evo.report.text import clip_line, number, visible
from evo.watch.state import State, Watcher

BARS = "▁▂▃▄▅▆▇█"
SPARK = 60
_COLORS = {"running": "cyan", "finished": "green", "interrupted": "yellow", "crashed": "red"}


def view(watcher: Watcher) -> Panel:
    """The whole view."""
    state = watcher.state
    parts: list[RenderableType] = [
        _head(watcher),
        _budget(watcher),
        Text(best_line(state)),
        Text(sparkline(state.rise, state.judged)),
    ]
    if state.finalists:
        parts.append(Text(shown(finalists_line(state.finalists))))
    parts += [Rule(style="dim"), _columns(state), Rule(style="dim"), _latest(state)]
    if cost := cost_line(state):
        parts.append(Text(cost, style="dim"))
    return Panel(Group(*parts), title=Text(shown(watcher.dir.path.resolve().name)), border_style="dim")


def shown(text: str) -> str:
    """One line of untrusted text, at most 160 characters."""
    return visible(clip_line(text.split("\n", 1)[0], 160)).replace("\t", " ")


def _head(watcher: Watcher) -> Text:
    status, state = watcher.status, watcher.state
    task = state.started.task if state.started else watcher.config.task
    text = Text.assemble((status, f"bold {_COLORS[status]}"), f"  {shown(task)}  generation {state.generations}")
    text.append(f"  {state.seconds:.0f} s  cells {state.cells}")
    if state.trainings:
        text.append(f"  trainings {state.trainings}")
    if status in ("interrupted", "crashed"):
        text.append(f"\ncontinue with: kernevo resume {shlex.quote(shown(str(watcher.dir.path)))}", style="yellow")
    return text


def _budget(watcher: Watcher) -> Table:
    state, budget = watcher.state, watcher.config.budget.evaluations
    row = Table.grid(padding=(0, 1))
    total = "" if budget is None else f" of {budget}"
    row.add_row(
        ProgressBar(total=budget or max(state.judged, 1), completed=state.judged, width=24),
        Text(f"{state.judged}{total} judged, {state.correct} correct, {state.born - state.judged} waiting"),
    )
    return row


def best_line(state: State) -> str:
    """The best so far, never without the kind of its number."""
    if state.best is None:
        return "no correct candidate yet" if state.judged else "nothing judged yet"
    return f"best {state.best.id}  {shown(speedup_text(state.best))}"


def sparkline(rise: Sequence[tuple[int, float]], judged: int, width: int = SPARK) -> str:
    """The best speedup over the evaluations, one letter for each share of them; lowest and highest in words."""
    if not rise or judged < 1:
        return ""
    low, high = rise[0][1], rise[-1][1]
    letters, index = [], -1
    for column in range(min(width, judged)):
        reached = (column + 1) * judged / min(width, judged)
        while index + 1 < len(rise) and rise[index + 1][0] <= reached:
            index += 1
        share = (rise[index][1] - low) / (high - low) if index >= 0 and high > low else 0.0
        letters.append(" " if index < 0 else BARS[round(share * (len(BARS) - 1))])
    return f"{''.join(letters)}  {number(low, '.3f')}x → {number(high, '.3f')}x"


def _columns(state: State) -> Table:
    grid = Table.grid(padding=(0, 4))
    verdicts = ((str(status), str(count)) for status, count in state.verdicts.most_common(10))
    operators = (
        (shown(name), str(one.tried), str(one.correct), "-" if one.best is None else f"{number(one.best, '.3f')}x")
        for name, one in state.operators.items()
    )
    grid.add_row(
        _table(("verdict", "candidates"), verdicts), _table(("operator", "tried", "correct", "best"), operators)
    )
    return grid


def _latest(state: State) -> Table:
    rows = ((record.id, shown(record.candidate.operator), *_verdict(record)) for record in reversed(state.latest))
    return _table(("latest", "operator", "verdict", ""), rows)


def _verdict(record: Record) -> tuple[str, str]:
    evaluation = record.evaluation
    said = shown(speedup_text(record)) if record.passed else shown(evaluation.reason)
    return str(evaluation.status), said


def cost_line(state: State) -> str:
    """What was spent, as far as anything was."""
    spent = state.spending
    parts = [f"{spent.gpu_seconds:.0f} GPU seconds"] * bool(spent.gpu_seconds)
    parts += [f"{spent.tokens:,} tokens"] * bool(spent.tokens) + [f"${spent.dollars:.4f}"] * bool(spent.dollars)
    return ", ".join(parts)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="ellipsis", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def plain_line(watcher: Watcher) -> str:
    """One line, for logs and pipes."""
    state, budget = watcher.state, watcher.config.budget.evaluations
    total = f"/{budget}" if budget else ""
    return (
        f"{watcher.status}  generation {state.generations}  evaluations {state.judged}{total}  "
        f"correct {state.correct}  {best_line(state)}  {state.seconds:.0f} s"
    )
