"""The proof of learning as README and docs show it: tables, and curves as SVG."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import result_pages
from benchmarks.result_pages import Row
from policy.training.stopwatch import PARTS

PATTERN = "learning_proof*.json"
NOT_YET = (
    "**Learning**: not measured yet. `python -m benchmarks.learning.prove` trains and judges all arms on a GPU "
    "([docs/proof.md](docs/proof.md))."
)
SPLITS = {"held_out": "held out", "training": "trained on"}
FIGURES = ("mean_reward", "geometric_mean", "valid", "correct", "fast@1", "fast@1.2", "hack_rate", "unique_ast")
DIFFERENCES = {
    "rl_minus_sft": "RL - SFT",
    "shuffled_minus_sft": "shuffled rewards - SFT",
    "rl_minus_shuffled": "RL - shuffled rewards",
    "rl_minus_sft_on_training": "RL - SFT, on the tasks trained on",
}
PANELS = ("mean_reward", "fast@1", "entropy")
COLOURS = ("#1b6ca8", "#c2571a", "#4a8f3c", "#7b4fa3")
WIDTH, HEIGHT, MARGIN, TOP = 280, 200, 46, 34
"""Of a panel, in pixels; its plot lies inside of the margin."""

Point = tuple[float, float]


def sections(results: Path, figures: str) -> str:
    """Tables and curves of every committed proof; one line that there is none yet. `figures` is the curves' folder as
    the page links it."""
    return result_pages.sections(results, PATTERN, _section, figures) or NOT_YET


def write_curves(results: Path, folder: Path) -> list[Path]:
    """One SVG for each committed proof. Returns what was written."""
    return result_pages.write_figures(results, PATTERN, lambda result: curves(result["curves"]), folder)


def _section(result: Row, figure: str) -> str:
    folds = "; ".join(_fold(pairs) for pairs in result["folds"])
    head = (
        f"**Learning** ({result['gpu']}): {result['model']} chooses rewrites; {folds}. "
        f"{len(result['seeds'])} training seeds, timings *{result['timing_kind']}*. "
        f"{_verdict(result['claim'])} Commit {result['commit'][:10]}, `{result['command'].strip()}`."
    )
    free = ", ".join(f"{arm} {share:.1%}" for arm, share in result["valid_without_constraint"].items())
    valid = f"Valid answers of a free sampler: {free}."
    parts = [head, _arms(result["arms"]), _differences(result), valid, _steps(result["rl_steps"]), _link(figure)]
    return "\n\n".join(parts)


def _steps(found: Row) -> str:
    seconds = ", ".join(f"{part} {found['seconds'][part]:.2f} s" for part in PARTS)
    return (
        f"A step of reinforcement learning (median of {found['steps']}): {found['seconds']['step']:.2f} s, of which "
        f"{seconds}, everything else {found['overhead_share']:.1%}. Log-probabilities of sampler and trainer differ by "
        f"{found['mismatch_mean_abs']:.2g} on average and {found['mismatch_max_abs']:.2g} at most; "
        f"{found['mismatch_rejected']:.1%} of the answers were rejected for it (MRS)."
    )


def _fold(pairs: Mapping[str, Sequence[str]]) -> str:
    tasks = {split: ", ".join(sorted({pair.split("@")[0] for pair in names})) for split, names in pairs.items()}
    return (
        f"trained on {len(pairs['training'])} (task, shape) pairs of {tasks['training']}, "
        f"judged on {len(pairs['held_out'])} of {tasks['held_out']}"
    )


def _verdict(claim: Mapping[str, bool]) -> str:
    return " ".join(f"*{part}*: {'yes' if holds else '**no**'}." for part, holds in claim.items())


def _link(figure: str) -> str:
    return f"![Rewards of the training's answers, step by step]({figure})"


def _arms(arms: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    lines = [f"| tasks | arm | {' | '.join(name.replace('_', ' ') for name in FIGURES)} |"]
    lines.append("|" + "---|" * (len(FIGURES) + 2))
    for split, words in SPLITS.items():
        for arm, found in arms[split].items():
            values = [f"{found[name]:.3f}" if name in found else "-" for name in FIGURES]
            lines.append(f"| {words} | {arm} | {' | '.join(values)} |")
    return "\n".join(lines)


def _differences(result: Row) -> str:
    lines = ["| mean reward | difference | 95 % interval, by task | by (task, shape) |", "|---|---|---|---|"]
    for key, words in DIFFERENCES.items():
        found = result[key]
        by_task, by_pair = (f"[{one['low']:+.3f}, {one['high']:+.3f}]" for one in (found, found["by_pair"]))
        lines.append(f"| {words} | {found['mean']:+.3f} | {by_task} | {by_pair} |")
    return "\n".join(lines)


def curves(arms: Mapping[str, Sequence[Sequence[Row]]]) -> str:
    """An SVG of what trainings logged: by arm a list of rows for each seed. Seeds are thin lines, their mean a thick
    one; arms and figures that nothing was logged of are left out."""
    shown = {arm: seeds for arm, seeds in arms.items() if any("mean_reward" in row for rows in seeds for row in rows)}
    panels = [name for name in PANELS if any(name in row for rows in shown.values() for one in rows for row in one)]
    parts = [_panel(name, shown, number * WIDTH) for number, name in enumerate(panels)]
    legend = [
        f'<text x="{MARGIN + 260 * number}" y="{HEIGHT + 18}" fill="{colour}">{_escaped(arm)}</text>'
        for number, (arm, colour) in enumerate(zip(shown, COLOURS, strict=False))
    ]
    width = max(len(panels) * WIDTH, 2 * WIDTH)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT + 30}" '
        f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join([*parts, *legend])
        + "\n</svg>\n"
    )


def _panel(name: str, arms: Mapping[str, Sequence[Sequence[Row]]], left: int) -> str:
    lines: list[tuple[str, float, list[Point]]] = []
    for (_, seeds), colour in zip(arms.items(), COLOURS, strict=False):
        own = [[(row["step"], row[name]) for row in rows if row.get(name) is not None] for rows in seeds]
        lines += [(colour, 0.7, points) for points in own if points]
        lines.append((colour, 2.4, _mean(own)))
    every = [point for _, _, points in lines for point in points]
    (x0, x1), (y0, y1) = (_range([point[axis] for point in every]) for axis in (0, 1))

    def place(point: Point) -> str:
        x = left + MARGIN + (point[0] - x0) / (x1 - x0) * (WIDTH - MARGIN - 14)
        y = TOP + (y1 - point[1]) / (y1 - y0) * (HEIGHT - TOP - 30)
        return f"{x:.1f},{y:.1f}"

    drawn = [
        f'<polyline fill="none" stroke="{colour}" stroke-width="{width}" points="{" ".join(map(place, points))}"/>'
        for colour, width, points in lines
    ]
    box = (left + MARGIN, TOP, left + WIDTH - 14, HEIGHT - 30)
    frame = result_pages.frame(box, name.replace("_", " "), (f"{y0:.2g}", f"{y1:.2g}"), (f"step {x0:g}", f"{x1:g}"))
    return "\n".join([*frame, *drawn])


def _mean(seeds: Sequence[Sequence[Point]]) -> list[Point]:
    """At the steps that every seed has."""
    known = [dict(points) for points in seeds if points]
    steps = sorted(set.intersection(*(set(one) for one in known))) if known else []
    return [(step, sum(one[step] for one in known) / len(known)) for step in steps]


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)
