"""The ablation as docs/ablation.md shows it: a table and the best so far by evaluations, as SVG."""

from __future__ import annotations

import html
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks import result_pages
from benchmarks.result_pages import Row

PATTERN = "ablation*.json"
NOT_YET = "Not run yet: `python -m benchmarks.ablation`, then `python -m benchmarks.tables`."
COLOURS = ("#111111", "#1b6ca8", "#c2571a", "#4a8f3c", "#7b4fa3", "#999999")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 360, 240, 46, 34, 34
"""Of a panel and the margins of its plot, in pixels."""


def sections(results: Path, figures: str) -> str:
    """A table and a figure for every committed ablation; `figures` is their folder as the page links it."""
    return result_pages.sections(results, PATTERN, _section, figures) or NOT_YET


def write_figures(results: Path, folder: Path) -> list[Path]:
    """One SVG for each committed ablation. Returns what was written."""
    return result_pages.write_figures(results, PATTERN, figure, folder)


def _section(result: Row, link: str) -> str:
    head = (
        f"Latencies are *{result['kind']}*; {result['evaluations']} evaluations at most in each run. Commit "
        f"{result['commit'][:10]}, `{result['command'].strip()}`, {result['hardware']['processor']}."
    )
    table = [
        f"| task | arm | evaluations to {result['share']:.0%} of the best known, by seed | median (least to most) | "
        "against the whole engine | best, median |",
        "|---|---|---|---|---|---|",
    ]
    table += [line for task, found in result["tasks"].items() for line in _rows(task, found)]
    what = f"![Best {result['kind']} speedup so far by evaluations]({link})"
    return "\n\n".join([head, "\n".join(table), what])


def _rows(task: str, found: Row) -> list[str]:
    whole = found["arms"]["full"]["median"]
    name = f"{task} (best known {found['best_known']:.2f}x, {len(found['seeds'])} seeds)"
    lines = []
    for arm, row in found["arms"].items():
        by_seed = ", ".join(map(_count, row["reached"]))
        spread = f"{_count(row['median'])} ({_count(row['least'])} to {_count(row['most'])})"
        lines.append(
            f"| {name} | {arm} | {by_seed} | {spread} | {_ratio(row['median'], whole)} | "
            f"{statistics.median(row['best']):.2f}x |"
        )
        name = ""
    return lines


def _count(number: float | None) -> str:
    return "not reached" if number is None else f"{number:g}"


def _ratio(median: float | None, whole: float | None) -> str:
    return "-" if median is None or whole is None else f"{median / whole:.2f}x"


def figure(result: Row) -> str:
    """One panel for each task; each arm's line is the median over its seeds of the best speedup so far."""
    tasks = result["tasks"]
    parts = [_panel(task, found, number * WIDTH) for number, (task, found) in enumerate(tasks.items())]
    arms = list(next(iter(tasks.values()))["arms"])
    parts += [
        f'<text x="{LEFT}" y="{HEIGHT + 16 * number}" fill="{colour}">{html.escape(arm)}</text>'
        for number, (arm, colour) in enumerate(zip(arms, COLOURS, strict=True), start=1)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{len(tasks) * WIDTH}" height="{HEIGHT + 16 * len(arms) + 12}" '
        f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _panel(task: str, found: Row, left: int) -> str:
    lines = [middle(row["curves"]) for row in found["arms"].values()]
    longest, top = max(map(len, lines)), found["best_known"]
    right, bottom = left + WIDTH - 14, HEIGHT - BOTTOM

    def place(number: int, value: float) -> str:
        x = left + LEFT + (number - 1) / max(1, longest - 1) * (right - left - LEFT)
        return f"{x:.1f},{bottom - value / top * (bottom - TOP):.1f}"

    drawn = [
        f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" points="'
        + " ".join(place(number, value) for number, value in enumerate(line, start=1))
        + '"/>'
        for line, colour in zip(lines, COLOURS, strict=True)
    ]
    box = (left + LEFT, TOP, right, bottom)
    frame = result_pages.frame(box, task, ("0", f"{top:.2f}x"), ("evaluation 1", str(longest)))
    return "\n".join([*frame, *drawn])


def middle(curves: Sequence[Sequence[float]]) -> list[float]:
    """The median over seeds after each evaluation; a run that ended early keeps its best."""
    longest = max(map(len, curves))
    return [statistics.median(one[min(at, len(one) - 1)] for one in curves) for at in range(longest)]
