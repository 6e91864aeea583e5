"""The dataset card: what the rows are, where they come from, and what they must not be used for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from policy.exports.base import Format
from policy.exports.writer import DATA, feature_lines
from policy.types import Turn

BINS = 10
BAR = 30


def card(chosen: Format, turns: Sequence[Turn], components: list[str], considered: int, version: str) -> str:
    """The whole README.md, its YAML head included."""
    head = ["---", "configs:", "- config_name: default", "  data_files:", "  - split: train", f"    path: {DATA}"]
    head += [*feature_lines(dict(chosen.features), components), "---"]
    kinds = _counts(turn.timing_kind or "none (failed)" for turn in turns)
    lines = [
        f"# {chosen.name} export",
        "",
        f"{chosen.about} Written by Kernevo {version}.",
        "",
        f"* rows: {len(turns)} of {considered} turns",
        f"* timing kind: {kinds}",
        f"* tasks: {_counts(turn.task for turn in turns)}",
        f"* splits: {_counts(turn.split for turn in turns)}",
        f"* groups: {len({(turn.run, turn.group) for turn in turns})}",
        "",
        *_warnings(turns),
        *(f"> {note}\n" for note in chosen.notes(turns)),
        "## Verdicts",
        "",
        *_table("verdict", Counter(turn.status for turn in turns)),
        "## Rewards",
        "",
        "```",
        *histogram([turn.reward for turn in turns]),
        "```",
        "",
        "## Provenance",
        "",
        *_provenance(turns),
        "## Loading",
        "",
        "```python",
        "from datasets import load_dataset",
        "",
        'rows = load_dataset("path/of/this/folder", split="train")',
        "```",
        "",
    ]
    return "\n".join([*head, "", *lines])


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


def _warnings(turns: Sequence[Turn]) -> list[str]:
    if not any(turn.timing_kind == "modelled" for turn in turns):
        return []
    return [
        "> **Modelled timings.** Latencies here come from a cost model, not a clock; rows say so in `timing_kind`. "
        "A policy trained on them learns what the model rewards, which need not be what the hardware does.\n"
    ]


def _provenance(turns: Sequence[Turn]) -> list[str]:
    versions = {f"{name} {value}" for turn in turns for name, value in turn.versions.items()}
    facts = {
        "runs": _counts(turn.run for turn in turns),
        "targets": _counts(turn.target or "unknown" for turn in turns),
        "policies": _counts(f"{turn.policy} {turn.policy_version}" for turn in turns),
        "operators": _counts(turn.operator for turn in turns),
        "versions": ", ".join(sorted(versions)) or "unknown",
    }
    return [*(f"* {name}: {value}" for name, value in facts.items()), ""]


def _counts(values: Iterable[str]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in sorted(Counter(values).items())) or "none"


def _table(heading: str, counts: Counter[str]) -> list[str]:
    rows = [f"| {name} | {count} |" for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    return [f"| {heading} | turns |", "|---|---|", *rows, ""]
