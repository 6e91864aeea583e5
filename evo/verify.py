"""Verify: every kernel of a harvest judged again, on the task that lies beside it, as its run judged it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator.errors import UsageError
from evaluator.types import Evaluation
from evo.harvest import FACTS, SCHEMA_VERSION

Judge = Callable[[str, str, str], Evaluation]
"""(task, source, evaluator) -> the verdict of today."""


@dataclass(frozen=True)
class Verified:
    """One kernel: what its harvest says, and what is said today."""

    file: str
    changed: bool
    """Since it was harvested."""
    speedup_before: float | None
    kind_before: str
    evaluation: Evaluation

    @property
    def passed(self) -> bool:
        """Whether the kernel is still correct."""
        return self.evaluation.status.passed

    @property
    def comparable(self) -> bool:
        """Whether both speedups are of one kind."""
        return self.speedup_before is not None and self.evaluation.kind == self.kind_before

    @property
    def ratio(self) -> float | None:
        """Today's speedup over the harvest's; None where they cannot be compared."""
        now = self.evaluation.speedup
        if not self.comparable or now is None or not self.speedup_before or not math.isfinite(now):
            return None
        return now / self.speedup_before


def verify(folder: Path, evaluator: str | None, judge: Judge) -> list[Verified]:
    """Judge every kernel of the harvest in `folder`, with its run's kind of evaluator unless another is given.

    Raises UsageError where the folder holds no harvest, or one without a task or of another version.
    """
    facts = read_facts(folder)
    task = folder / "task"
    if not task.is_dir():
        raise UsageError(
            f"{folder}: holds no task/ folder",
            "harvest again with this version, or use `kernevo evaluate KERNEL --task T`",
        )
    found = []
    for one in [*facts["elites"], *facts.get("specialists", ())]:
        data = _kernel(folder, str(one["file"]))
        used = evaluator or ("gpu" if one["timing_kind"] == "measured" else "cpu")
        evaluation = judge(str(task), data.decode("utf-8", "surrogatepass"), used)
        changed = hashlib.sha256(data).hexdigest() != one["file_sha"]
        found.append(Verified(str(one["file"]), changed, one["speedup"], str(one["timing_kind"]), evaluation))
    return found


def read_facts(folder: Path) -> dict[str, Any]:
    """The harvest.json of a folder. Raises UsageError saying what is wrong with it."""
    path = folder / FACTS
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version, kernels = facts["schema_version"], facts["elites"]
    except FileNotFoundError:
        raise UsageError(
            f"{folder}: holds no harvest ({FACTS})", "give a folder that `kernevo harvest` wrote"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: not readable: {error}", "harvest again") from None
    if version != SCHEMA_VERSION:
        raise UsageError(f"{path}: version {version}, this Kernevo reads {SCHEMA_VERSION}", "harvest again")
    needed = {"file", "file_sha", "speedup", "timing_kind"}
    if not all(isinstance(one, dict) and needed <= one.keys() for one in kernels):
        raise UsageError(f"{path}: a kernel lacks one of {', '.join(sorted(needed))}", "harvest again")
    return facts


def _kernel(folder: Path, name: str) -> bytes:
    path = folder / name
    if path.parent != folder:
        raise UsageError(f"{folder / FACTS}: {name!r} is no file of this folder", "harvest again")
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "harvest again, or restore the file") from None
