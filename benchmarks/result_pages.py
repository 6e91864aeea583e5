"""Results that have a page of their own: a section and a figure for each committed file."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


def sections(results: Path, pattern: str, section: Callable[[Row, str], str], figures: str) -> str:
    """The sections of all results that `pattern` names, empty without any; `section` is given a result and the link
    of its figure in the folder `figures`."""
    paths = sorted(results.glob(pattern))
    return "\n\n".join(section(_read(path), f"{figures}/{path.stem}.svg") for path in paths)


def write_figures(results: Path, pattern: str, figure: Callable[[Row], str], folder: Path) -> list[Path]:
    """One SVG for each result; those of results that are gone are deleted. Returns what was written."""
    for stale in folder.glob(pattern.replace(".json", ".svg")):
        stale.unlink()
    written = []
    for path in sorted(results.glob(pattern)):
        folder.mkdir(parents=True, exist_ok=True)
        written.append(folder / f"{path.stem}.svg")
        written[-1].write_text(figure(_read(path)), encoding="utf-8")
    return written


def frame(box: tuple[int, int, int, int], title: str, values: tuple[str, str], places: tuple[str, str]) -> list[str]:
    """SVG of a plot's title and axes; `box` is left, top, right, bottom, `values` and `places` are the labels of both
    axes' ends."""
    left, top, right, bottom = box
    (low, high), (first, last) = values, places
    return [
        f'<text x="{left}" y="20" font-weight="bold">{html.escape(title, quote=False)}</text>',
        f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="#888"/>',
        f'<text x="{left - 4}" y="{top + 8}" text-anchor="end" fill="#555">{high}</text>',
        f'<text x="{left - 4}" y="{bottom}" text-anchor="end" fill="#555">{low}</text>',
        f'<text x="{left}" y="{bottom + 14}" fill="#555">{first}</text>',
        f'<text x="{right}" y="{bottom + 14}" text-anchor="end" fill="#555">{last}</text>',
    ]


def _read(path: Path) -> Row:
    found: Row = json.loads(path.read_text(encoding="utf-8"))
    return found
