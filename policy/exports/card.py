"""The dataset card: what the rows are, where they come from, what was left out, what they must not be used for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from policy.exports.base import Format, Selection
from policy.exports.tally import Tally
from policy.exports.writer import Writer, data

BINS = 10
BAR = 30


def card(
    chosen: Format,
    used: Tally,
    selection: Selection,
    *,
    rows: Mapping[str, int],
    considered: int,
    writer: Writer,
    version: str,
) -> str:
    """The whole README.md, its YAML head included. `used` are the turns in the rows, `rows` the rows by split."""
    head = ["---", "configs:", "- config_name: default", "  data_files:"]
    for split in writer.splits:
        head += [f"  - split: {split}", f"    path: {data(split)}"]
    lines = [
        *head,
        *writer.feature_lines(),
        "---",
        "",
        f"# {chosen.name} export",
        "",
        f"{chosen.about} Written by Kernevo {version}.",
        "",
        f"* rows: {sum(rows.values())}, of {used.turns} turns, of {considered} turns in the runs",
        f"* files: {', '.join(f'{data(split)} ({rows[split]})' for split in writer.splits)}",
        f"* timing kind: {_counts(used.facts['timings'])}",
        f"* tasks: {_counts(used.facts['tasks'])}",
        f"* splits: {_counts(used.facts['splits'])}",
        f"* groups: {len(used.groups)}",
        "",
        *_warnings(used),
        *(f"> {note}\n" for note in chosen.notes(used)),
        *_left_out(selection),
        "## Verdicts",
        "",
        *_table("verdict", used.facts["statuses"]),
        *_rewards(used),
        *_provenance(used),
        *_loading(writer.splits[0]),
    ]
    return "\n".join(lines)


def histogram(values: Sequence[float]) -> list[str]:
    """One text line for each of ten equal bins over the range of the values; one line when all are equal."""
    low, high = min(values), max(values)
    if low == high:
        return [f"{low:+.3f}  {len(values)}"]
    width = (high - low) / BINS
    counts = Counter(min(BINS - 1, int((value - low) / width)) for value in values)
    most = max(counts.values())
    return [
        f"{low + bin * width:+.3f} … {low + (bin + 1) * width:+.3f}  "
        f"{'#' * round(BAR * counts[bin] / most):<{BAR}}  {counts[bin]}"
        for bin in range(BINS)
    ]


def _warnings(used: Tally) -> list[str]:
    found = []
    if used.modelled:
        found.append(
            "> **Modelled timings** (`--allow-modelled`). Latencies here come from a cost model, not a clock; rows say "
            "so in `timing_kind`. A policy trained on them learns what the model rewards, which need not be what the "
            "hardware does.\n"
        )
    if used.held_out:
        found.append(
            f"> **Held-out tasks** (`--allow-held-out`): {', '.join(sorted(used.held_out))}. They are for measuring "
            "what a policy learned and lie in the split `test`; never train on them.\n"
        )
    return found


def _left_out(selection: Selection) -> list[str]:
    if not selection.left_out:
        return []
    return ["## Left out", "", *_table("why", selection.left_out)]


def _rewards(used: Tally) -> list[str]:
    formulas = ", ".join(sorted(used.reward_types))
    return [
        "## Rewards",
        "",
        f"Formula: {formulas} (of the turns in the rows).",
        "",
        "```",
        *histogram(used.rewards),
        "```",
        "",
    ]


def _provenance(used: Tally) -> list[str]:
    facts = {name: _counts(used.facts[name]) for name in ("runs", "targets", "policies", "operators")}
    versions = ", ".join(sorted(used.facts["versions"])) or "unknown"
    return [
        "## Provenance",
        "",
        *(f"* {name}: {value}" for name, value in facts.items()),
        f"* versions: {versions}",
        "",
    ]


def _loading(split: str) -> list[str]:
    return [
        "## Loading",
        "",
        "```python",
        "from datasets import load_dataset",
        "",
        f'rows = load_dataset("path/of/this/folder", split="{split}")',
        "```",
        "",
    ]


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in sorted(counts.items())) or "none"


def _table(heading: str, counts: Counter[str]) -> list[str]:
    rows = [f"| {name} | {count} |" for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    return [f"| {heading} | turns |", "|---|---|", *rows, ""]
