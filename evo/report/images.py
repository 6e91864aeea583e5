"""The report's figures as image files, for slides and papers: kaleido draws them in a headless Chromium or Chrome."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Literal

from evaluator.errors import EnvironmentUnusableError
from evo.report.render import figures_of
from evo.run import Run

ImageKind = Literal["svg", "png"]
WIDTH, HEIGHT, SCALE = 900, 560, 2
"""Pixels; a PNG has `SCALE` times as many."""
COLORS = ("#0b62b8", "#c2570c", "#2a7f4f", "#8a4fbf", "#b3305f", "#7a6a00")


def has_kaleido() -> bool:
    """Whether the package that draws is installed."""
    return importlib.util.find_spec("kaleido") is not None


def write_images(run: Run, folder: Path, kind: ImageKind) -> list[Path]:
    """Write every figure that the report of `run` shows; returns the paths, in its order.

    Raises EnvironmentUnusableError without kaleido or a browser, and when the folder cannot be written.
    """
    if not has_kaleido():
        raise EnvironmentUnusableError("kaleido is not installed", "pip install 'kernevo[figures]'")
    import plotly.graph_objects as go
    import plotly.io as pio

    drawn = figures_of(run)
    paths = [folder / f"{figure.name}.{kind}" for figure in drawn]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentUnusableError(
            f"{folder}: cannot be made: {error.strerror}", "give another --figures"
        ) from None
    whole = [
        go.Figure(figure.spec).update_layout(template="plotly_white", title=figure.title, colorway=COLORS)
        for figure in drawn
    ]
    try:
        pio.write_images(whole, [str(path) for path in paths], width=WIDTH, height=HEIGHT, scale=SCALE)
    except Exception as error:  # kaleido's errors have no common class, and most mean that no browser starts
        words = str(error).strip().splitlines()
        raise EnvironmentUnusableError(
            f"the figures could not be drawn: {words[0] if words else type(error).__name__}",
            "install chromium, or set BROWSER_PATH to a Chrome or Chromium",
        ) from error
    return paths
