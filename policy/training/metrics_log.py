"""`metrics.jsonl` of a training: one JSON document for each logged step. Needs no torch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evaluator.errors import EnvironmentUnusableError


class MetricsLog:
    """Appends; steps behind the checkpoint that a training resumes from are dropped, as they are trained again."""

    def __init__(self, path: Path, resume_step: int = 0) -> None:
        self.path = path
        kept = [row for row in read(path) if row["step"] <= resume_step]
        self.rows = kept
        self._write("w", "".join(map(_line, kept)))

    def append(self, step: int, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Keep one step's metrics; returns the row."""
        row = {"step": step, **{name: _plain(value) for name, value in metrics.items()}}
        self.rows.append(row)
        self._write("a", _line(row))
        return row

    def _write(self, mode: str, text: str) -> None:
        try:
            with self.path.open(mode, encoding="utf-8") as stream:
                stream.write(text)
        except OSError as error:
            raise EnvironmentUnusableError(
                f"{self.path}: cannot be written: {error.strerror or error}", "free the disk, then use --resume"
            ) from error


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, a torn last line left out; none where there is no file."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row) + "\n"


def _plain(value: Any) -> Any:
    """JSON has no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
