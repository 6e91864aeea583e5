"""metrics.jsonl: one line per generation, for notebooks and dashboards. Derived; never read by a resume."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evo.candidate import Record
from evo.events import Finalists
from evo.monitors.base import Step


class JsonlMonitor:
    """Appends each step as one JSON object."""

    def __init__(self, path: Path) -> None:
        self._stream = path.open("a", encoding="utf-8")

    def candidate(self, record: Record) -> None:
        """Candidates are in the journal already."""

    def step(self, step: Step) -> None:
        """One line per generation."""
        self._stream.write(step.model_dump_json() + "\n")
        self._stream.flush()

    def policy(self, summary: Mapping[str, Any]) -> None:
        """One line at the end of a session, under the key `policy`."""
        self._stream.write(json.dumps({"policy": summary}) + "\n")
        self._stream.flush()

    def finalists(self, finalists: Finalists) -> None:
        """One line, under the key `finalists`."""
        self._stream.write(json.dumps({"finalists": finalists.model_dump(mode="json")}) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._stream.close()
