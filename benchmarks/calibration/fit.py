"""Fits the cost model to measured points and reports how it does on tasks left out.

    python -m benchmarks.calibration.fit data/h200.jsonl.gz [--write]

Reads a file of measure.py (plain or gzipped) and the points beside the code. `--write` replaces
evaluator/data/h200.json, which the cost model then uses, and benchmarks/results/calibration.json. A row counts when
its kernel was correct.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.calibration.records import DATA, Machine, Measured, Point, read, read_points
from benchmarks.common import provenance
from evaluator import calibrate, hardware
from evaluator.calibrate import HeldOut, Observation, Scores, scores
from evaluator.calibration import FOLDER, Calibration
from evaluator.task import load_task

TARGET = "h200"
RESULT = Path(__file__).parents[1] / "results" / "calibration.json"


def observations(points: Iterable[Point], rows: Iterable[Measured], compiled: str) -> list[Observation]:
    """Correct rows with their points' traces, and resources as `compiled` says: `here` (the machine of the points,
    what the cpu evaluator sees) or `there` (the measuring machine's own Triton)."""
    known = {point.id: point for point in points}
    found = []
    for row in rows:
        point = known.get(row.id)
        if point is None or row.median_ms is None or row.error:
            continue
        launches = point.launches[row.workload]
        resources = [launch.resources for launch in launches]
        if compiled == "there":
            if len(row.resources) != len(launches):
                continue
            resources = list(row.resources)
        pairs = [(launch.trace, kernel) for launch, kernel in zip(launches, resources, strict=True)]
        family = load_task(point.task).family
        found.append(Observation(point.task, family, point.structure, row.workload, pairs, row.median_ms))
    return found


def report(held: HeldOut) -> dict[str, Any]:
    """Scores over all held-out points and of each task, before and after."""
    tasks = sorted({seen.task for seen in held.observations})
    return {
        "before": scores(held.observations, held.before).model_dump(),
        "after": scores(held.observations, held.after).model_dump(),
        "tasks": {task: _of_task(held, task) for task in tasks},
    }


def _of_task(held: HeldOut, task: str) -> dict[str, Any]:
    rows = [row for row, seen in enumerate(held.observations) if seen.task == task]
    own = [held.observations[row] for row in rows]
    return {
        "before": scores(own, held.before[rows]).model_dump(),
        "after": scores(own, held.after[rows]).model_dump(),
    }


def calibration(seen: Sequence[Observation], about: dict[str, Any]) -> tuple[Calibration, dict[str, Any]]:
    """The calibration fitted to all observations, and the report on tasks left out."""
    target = hardware.get(TARGET)
    held = calibrate.leave_tasks_out(seen, target)
    told = report(held)
    overall, by_family = calibrate.spreads(held)
    model = calibrate.fit(seen, target)
    fitted = {
        name: getattr(model.hardware, name)
        for name in type(target).model_fields
        if getattr(model.hardware, name) != getattr(target, name)
    }
    told["fitted_to_all"] = scores(seen, calibrate.Table.of(seen, target).predicted(model)).model_dump()
    return (
        Calibration(
            target=TARGET,
            coefficients=model.coefficients,
            hardware=fitted,
            spread=overall,
            spread_by_family=by_family,
            scores={key: told[key] for key in ("before", "after")},
            provenance=about,
        ),
        told,
    )


def show(told: dict[str, Any]) -> str:
    """A table of the scores."""
    names = [name for name in Scores.model_fields if name != "points"]
    lines = [f"{'':24}{'points':>7}" + "".join(f"{name:>22}" for name in names)]
    rows = [("all, before", told["before"]), ("all, after", told["after"]), ("fitted to all", told["fitted_to_all"])]
    for task, both in told["tasks"].items():
        rows += [(f"{task}, {when}", both[when]) for when in ("before", "after")]
    for label, held in rows:
        lines.append(f"{label:24}{held['points']:>7}" + "".join(f"{held[name]:>22.3f}" for name in names))
    return "\n".join(lines)


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--points", type=Path, default=DATA)
    parser.add_argument("--compiled", choices=["here", "there"], default="here")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    seen = observations(read_points(options.points), read(options.data, Measured), options.compiled)
    about = {**provenance("benchmarks/calibration/fit.py"), "points": len(seen), "compiled": options.compiled}
    machine = options.data.with_name("machine.json")
    if machine.is_file():
        about["measured_on"] = Machine.model_validate_json(machine.read_text()).model_dump(mode="json")
    found, told = calibration(seen, about)
    print(show(told))
    print(found.model_dump_json(indent=2, include={"coefficients", "hardware", "spread", "spread_by_family"}))
    if options.write:
        (FOLDER / f"{TARGET}.json").write_text(found.model_dump_json(indent=2) + "\n")
        result = {"kind": "modelled against measured, tasks left out", **told, **about}
        RESULT.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if told["after"]["config_tau"] >= 0.6 else 1


if __name__ == "__main__":
    sys.exit(main())
