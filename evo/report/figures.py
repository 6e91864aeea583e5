"""Figures as plotly.js specifications: plain dicts of data and layout, coloured by the page.

Text that came from kernels is made visible and HTML-escaped here, because plotly.js reads labels as a kind of HTML.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from evaluator.hardware import Hardware
from evaluator.types import LaunchProfile, TimingKind
from evo.candidate import Record
from evo.pareto import COSTS, costs
from evo.report.data import Cell, Findings
from evo.report.text import DASH, clip_line, finite, number, visible

Spec = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """One figure with the numbers behind it, for readers without scripts."""

    name: str
    title: str
    data: list[Spec]
    layout: Spec
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]] = ()

    @property
    def spec(self) -> Spec:
        """What plotly.js gets."""
        return {"data": self.data, "layout": self.layout}


def label(text: str) -> str:
    """Untrusted text as a plotly label."""
    return html.escape(visible(clip_line(text, 80)))


def axis(title: str, **more: Any) -> Spec:
    """An axis with its title."""
    return {"title": {"text": title}, "automargin": True, **more}


def convergence(findings: Findings, kind: TimingKind | None) -> Figure:
    """Best speedup against evaluations, every correct candidate behind it."""
    points = findings.points
    best = list(accumulate((point.speedup for point in points), max))
    numbers = [point.evaluation for point in points]
    steps: Spec = {
        "type": "scatter",
        "mode": "lines",
        "line": {"shape": "hv", "width": 2.5},
        "name": "best so far",
        "x": [*numbers, findings.judged] if numbers else [],
        "y": [*best, best[-1]] if best else [],
    }
    each: Spec = {
        "type": "scatter",
        "mode": "markers",
        "marker": {"size": 5, "opacity": 0.55},
        "name": "correct candidates",
        "x": numbers,
        "y": [point.speedup for point in points],
        "text": [label(point.candidate_id) for point in points],
        "hovertemplate": "%{text}: %{y:.3f}x<extra></extra>",
    }
    layout = {"xaxis": axis("evaluations", rangemode="tozero"), "yaxis": axis(f"speedup ({kind or 'none'})")}
    rows = [(str(p.evaluation), p.candidate_id, number(p.speedup)) for p in points if p.improves]
    columns = ("evaluation", "candidate", "speedup")
    return Figure("convergence", "Best speedup against evaluations", [each, steps], layout, columns, rows)


def by_the_clock(findings: Findings, kind: TimingKind | None) -> Figure:
    """Best speedup against wall-clock seconds, one point for each generation."""
    seconds = [finite(step.seconds) for step in findings.progress]
    best = [finite(step.best_speedup) for step in findings.progress]
    trace: Spec = {
        "type": "scatter",
        "mode": "lines+markers",
        "line": {"shape": "hv", "width": 2.5},
        "marker": {"size": 5},
        "name": "best so far",
        "x": seconds,
        "y": best,
    }
    layout = {"xaxis": axis("seconds", rangemode="tozero"), "yaxis": axis(f"speedup ({kind or 'none'})")}
    rows = [(number(x, ".1f"), number(y)) for x, y in zip(seconds, best, strict=True)]
    return Figure("clock", "Best speedup against seconds", [trace], layout, ("seconds", "best speedup"), rows)


def by_judging(findings: Findings, kind: TimingKind | None) -> Figure:
    """Best speedup against what judging took: GPU seconds where a GPU judges."""
    shown = [point for point in findings.points if point.improves]
    total = findings.cost.gpu or findings.cost.judging
    seconds = [*(point.spent_s for point in shown), max(total, findings.points[-1].spent_s)] if shown else []
    trace: Spec = {
        "type": "scatter",
        "mode": "lines",
        "line": {"shape": "hv", "width": 2.5},
        "name": "best so far",
        "x": seconds,
        "y": [*(point.speedup for point in shown), *(point.speedup for point in shown[-1:])],
    }
    unit = "GPU seconds" if findings.cost.gpu else "seconds of judging, no GPU used"
    layout = {"xaxis": axis(unit, rangemode="tozero"), "yaxis": axis(f"speedup ({kind or 'none'})")}
    rows = [(number(point.spent_s, ".1f"), point.candidate_id, number(point.speedup)) for point in shown]
    title = f"Best speedup against {unit.partition(',')[0]}"
    return Figure("judging", title, [trace], layout, (unit, "candidate", "speedup"), rows)


def funnel(findings: Findings) -> Figure:
    """How many candidates reached each stage and how many ended there."""
    names = [*(label(stage.name) for stage in findings.stages), "correct"]
    ended = [sum(stage.stopped.values()) for stage in findings.stages]
    went_on = [stage.reached - lost for stage, lost in zip(findings.stages, ended, strict=True)] + [findings.correct]
    bar: Spec = {"type": "bar", "orientation": "h", "y": names}
    data = [
        {**bar, "name": "went on", "x": went_on},
        {**bar, "name": "ended here", "x": [*ended, 0]},
    ]
    layout = {
        "barmode": "stack",
        "xaxis": axis("candidates"),
        "yaxis": {"autorange": "reversed", "automargin": True, "type": "category"},
    }
    rows = [(stage.name, str(stage.reached), _ended(stage.stopped)) for stage in findings.stages]
    return Figure("funnel", "Where candidates ended", data, layout, ("stage", "reached", "ended here"), rows)


def _ended(stopped: Counter[str]) -> str:
    return ", ".join(f"{status} {count}" for status, count in stopped.most_common()) or DASH


def archive(cells: list[Cell], descriptors: tuple[str, ...]) -> Figure | None:
    """Best speedup over the two descriptors that tell the cells apart most; None without cells."""
    if not cells:
        return None
    spread = [len({cell.words[index] for cell in cells}) for index in range(len(descriptors))]
    second, first = sorted(sorted(range(len(spread)), key=lambda index: -spread[index])[:2], reverse=True)
    rows = sorted({cell.words[first] for cell in cells}, key=_word_order)
    columns = sorted({cell.words[second] for cell in cells}, key=_word_order)
    best = {}
    for cell in reversed(cells):  # best last, so that it stays
        best[cell.words[first], cell.words[second]] = finite(cell.owner.speedup)
    grid = [[best.get((row, column)) for column in columns] for row in rows]
    heat: Spec = {
        "type": "heatmap",
        "x": [label(word) for word in columns],
        "y": [label(word) for word in rows],
        "z": grid,
        "text": [["" if value is None else f"{value:.2f}x" for value in line] for line in grid],
        "texttemplate": "%{text}",
        "hoverongaps": False,
        "xgap": 2,
        "ygap": 2,
        "colorbar": {"title": {"text": "speedup"}},
    }
    layout = {
        "xaxis": axis(descriptors[second], type="category"),
        "yaxis": axis(descriptors[first], type="category"),
    }
    table = [(" / ".join(cell.words), cell.owner.id, number(cell.owner.speedup)) for cell in cells]
    title = f"{len(cells)} cells, by {descriptors[first]} and {descriptors[second]}"
    return Figure("archive", title, [heat], layout, (" / ".join(descriptors), "owner", "speedup"), table)


def _word_order(word: str) -> tuple[int, str]:
    """Levels by size, all other words by name."""
    levels = ("low", "middle", "high")
    return (levels.index(word), "") if word in levels else (len(levels), word)


def pareto(front: list[Record]) -> Figure | None:
    """Latency against the first other cost that the front differs in; None without a correct candidate."""
    if not front:
        return None
    taken = [{name: finite(value) for name, value in costs(record).items()} for record in front]
    others = [name for name in COSTS if name != "latency_ms"]
    shown = next((name for name in others if len({one[name] for one in taken}) > 1), others[0])
    marks: Spec = {
        "type": "scatter",
        "mode": "markers",
        "marker": {"size": 9},
        "name": "Pareto front",
        "x": [one["latency_ms"] for one in taken],
        "y": [one[shown] for one in taken],
        "text": [label(record.id) for record in front],
        "hovertemplate": "%{text}: %{x:.4g} ms, %{y:.4g}<extra></extra>",
    }
    layout = {"xaxis": axis(f"latency_ms ({front[0].evaluation.kind})"), "yaxis": axis(shown)}
    rows = [(record.id, *(number(one[name]) for name in COSTS)) for record, one in zip(front, taken, strict=True)]
    title = f"Pareto front: latency against {shown}"
    return Figure("pareto", title, [marks], layout, ("candidate", *COSTS), rows)


def terms(best: Record) -> Figure | None:
    """What the time of the best is made of, summed over the launches of each workload; None without a profile."""
    profile = best.evaluation.profile
    if profile is None or not profile.launches:
        return None
    names = list(
        dict.fromkeys(name for launches in profile.launches.values() for one in launches for name in one.terms)
    )
    totals = {
        name: [sum(finite(one.terms.get(name)) or 0.0 for one in launches) for launches in profile.launches.values()]
        for name in names
    }
    workloads = list(profile.launches)
    shown = [label(workload) for workload in workloads]
    data = [{"type": "bar", "name": label(name), "x": shown, "y": totals[name]} for name in names]
    layout = {"barmode": "group", "xaxis": axis("", type="category"), "yaxis": axis(f"ms ({profile.kind})")}
    rows = [(workload, *(number(totals[name][index]) for name in names)) for index, workload in enumerate(workloads)]
    return Figure("terms", "Where the time of the best goes", data, layout, ("workload", *names), rows)


@dataclass(frozen=True)
class _Placed:
    """One launch on the roofline."""

    owner: str
    workload: str
    kernel: str
    intensity: float
    """FLOP per DRAM byte."""
    tflops: float
    share: float
    """Of the roof; above 1 the numbers cannot be real."""

    @property
    def verdict(self) -> str:
        return "above the roof" if self.share > 1.001 else f"{100 * self.share:.0f} % of the roof"


def roofline(records: dict[str, Record], hardware: Hardware, dtype: str) -> Figure | None:
    """Achieved FLOP/s against FLOP per DRAM byte under the roof, launches above it marked. None without a profile.

    Williams, Waterman, Patterson: Roofline (CACM 2009).
    """
    placed = [point for owner, record in records.items() for point in _placed(owner, record, hardware, dtype)]
    if not placed:
        return None
    data = [_points([point for point in placed if point.owner == owner], owner) for owner in records]
    data.append(_roof(hardware, hardware.peak_flops(dtype), [point.intensity for point in placed]))
    layout = {"xaxis": axis("FLOP per DRAM byte", type="log"), "yaxis": axis("TFLOP/s", type="log")}
    columns = ("candidate", "workload", "launch", "FLOP/byte", "TFLOP/s", "against the roof")
    rows = [(p.owner, p.workload, p.kernel, number(p.intensity), number(p.tflops), p.verdict) for p in placed]
    return Figure("roofline", f"Roofline of {hardware.name}, {dtype}", data, layout, columns, rows)


def _placed(owner: str, record: Record, hardware: Hardware, dtype: str) -> list[_Placed]:
    """Launches that a roofline can place: those that compute, move something and take time."""
    found = []
    for workload, launch in _launches(record):
        intensity, rate = launch.flops / launch.dram_bytes, launch.flops / (launch.latency_ms * 1e-3)
        roof = min(hardware.peak_flops(dtype), intensity * hardware.dram_bytes_per_s)
        found.append(_Placed(owner, workload, launch.kernel, intensity, rate / 1e12, rate / roof))
    return found


def _launches(record: Record) -> list[tuple[str, LaunchProfile]]:
    profile = record.evaluation.profile
    return [
        (workload, launch)
        for workload, launches in (profile.launches.items() if profile else ())
        for launch in launches
        if all((finite(value) or 0) > 0 for value in (launch.flops, launch.dram_bytes, launch.latency_ms))
    ]


def _points(placed: list[_Placed], owner: str) -> Spec:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": owner,
        "x": [point.intensity for point in placed],
        "y": [point.tflops for point in placed],
        "marker": {"size": 11, "symbol": ["x" if point.share > 1.001 else "circle" for point in placed]},
        "text": [f"{label(point.workload)}: {label(point.kernel)}, {point.verdict}" for point in placed],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _roof(hardware: Hardware, peak: float, intensities: list[float]) -> Spec:
    ridge = peak / hardware.dram_bytes_per_s
    ends = [min(*intensities, ridge) / 4, ridge, max(*intensities, ridge) * 4]
    heights = [min(peak, x * hardware.dram_bytes_per_s) / 1e12 for x in ends]
    return {"type": "scatter", "mode": "lines", "name": "roof", "x": ends, "y": heights, "hoverinfo": "skip"}
