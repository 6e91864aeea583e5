"""Results that have a page of their own: a section and a figure for each committed file."""

from __future__ import annotations

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


def _read(path: Path) -> Row:
    found: Row = json.loads(path.read_text(encoding="utf-8"))
    return found
