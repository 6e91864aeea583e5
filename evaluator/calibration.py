"""What measured kernels taught the cost model about a target: coefficients, hardware figures, and how far it errs.

A calibration is a file of this package, data/TARGET.json, written by `benchmarks.calibration.fit`. A target without one
is modelled with the documented defaults, and its latencies carry no spread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from evaluator.cost_model import DEFAULT, Coefficients
from evaluator.errors import HarnessError
from evaluator.hardware import Hardware
from evaluator.types import Frozen

FOLDER = Path(__file__).parent / "data"


class Spread(Frozen):
    """Where measured / modelled lies for tasks that the fit has not seen: 10 % below `low`, 10 % above `high`."""

    low: float = Field(gt=0)
    high: float = Field(gt=0)
    points: int
    """Measured (kernel, config, workload) points behind it."""


class Calibration(Frozen):
    """The cost model of one target as fitted to measurements on it."""

    target: str
    coefficients: Coefficients
    hardware: Mapping[str, float]
    """Fitted figures that replace those of `evaluator.hardware`."""
    spread: Spread
    spread_by_family: Mapping[str, Spread]
    scores: Mapping[str, Any]
    """How well tasks left out of the fit are predicted, before and after (benchmarks/results/calibration.json)."""
    provenance: Mapping[str, Any]

    def applied(self, hardware: Hardware) -> Hardware:
        """`hardware` with the fitted figures."""
        return hardware.model_copy(update=dict(self.hardware))

    def spread_of(self, family: str) -> Spread:
        """Of the task family's own points, or of all where it has none."""
        return self.spread_by_family.get(family, self.spread)


@lru_cache(maxsize=16)
def calibration(target: str, folder: Path = FOLDER) -> Calibration | None:
    """The calibration of a target, or None where there is none. Raises HarnessError for a broken file."""
    path = folder / f"{target}.json"
    if not path.is_file():
        return None
    try:
        found = Calibration.model_validate_json(path.read_text())
    except ValidationError as error:
        raise HarnessError(
            f"{path.name}: {error.errors()[0]['msg']}", "reinstall kernevo, or fit the calibration again"
        ) from None
    return found


def digest(target: str, folder: Path = FOLDER) -> str:
    """SHA-256 of a target's calibration, "" where there is none: verdicts under another one are not reused."""
    path = folder / f"{target}.json"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def calibrated(hardware: Hardware) -> tuple[Hardware, Coefficients]:
    """What to model `hardware` with: its calibration's figures and coefficients, or the documented ones."""
    found = calibration(hardware.name)
    return (hardware, DEFAULT) if found is None else (found.applied(hardware), found.coefficients)
