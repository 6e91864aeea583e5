"""What came of a suite's problems, and what that says: fast@p and geometric means with failures as 1.0.

fast@1 counts a speedup whose median is at least 1 and whose interval reaches no lower than 0.99; fast@1.2 is alike, 1.2
times that. A problem without a correct kernel is in every count, as a failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from evaluator.types import Evaluation, Frozen, geometric_mean
from evo.run import Run

BASELINES = ("eager", "torch.compile", "max-autotune", "seed")
LEAST_END = 0.99


class Speedup(Frozen):
    """Over one baseline; the geometric mean over workloads."""

    value: float
    low: float | None = None
    """Lower end of its 95 % interval; None where there is none."""

    def reaches(self, wanted: float) -> bool:
        """Whether it counts for fast@`wanted`."""
        return self.value >= wanted and (self.low is None or self.low >= wanted * LEAST_END)


class Row(Frozen):
    """One problem."""

    task: str
    state: Literal["correct", "none correct", "refused", "interrupted", "not begun"]
    reason: str = ""
    kind: str = ""
    """`modelled` or `measured`."""
    coverage: float | None = None
    """Share of the device's time in the kernel's own Triton kernels."""
    speedups: Mapping[str, Speedup] = Field(default_factory=dict)
    """By baseline."""
    evaluations: int = 0
    done: bool = False

    @property
    def said(self) -> str:
        """One line."""
        faster = ", ".join(f"{value.value:.3g}x over {name}" for name, value in self.speedups.items())
        return ": ".join(filter(None, [self.state, self.reason, f"{faster} {self.kind}" if faster else ""]))


def row_of(task: str, run: Run, done: bool) -> Row:
    """What came of one problem's run."""
    elites = run.elites(1)
    if not done:
        return Row(task=task, state="interrupted", evaluations=len(run.records()))
    if not elites:
        records = run.records()
        why = f"{records[0].evaluation.status}: {records[0].evaluation.reason}" if records else ""
        return Row(task=task, state="none correct", reason=why, evaluations=len(records), done=True)
    evaluation = elites[0].evaluation
    return Row(
        task=task,
        state="correct",
        kind=str(evaluation.kind or ""),
        coverage=evaluation.profile.coverage if evaluation.profile is not None else None,
        speedups=speedups(evaluation),
        evaluations=len(run.records()),
        done=True,
    )


def speedups(evaluation: Evaluation) -> dict[str, Speedup]:
    """Over every baseline that all workloads know.

    Only one baseline is timed beside the kernel. What the kernel gains over another one is that, times what this one
    gained over the other when both were screened.
    """
    found: dict[str, Speedup] = {}
    timings = list(evaluation.timings.values())
    for name in BASELINES:
        factors = []
        for timing in timings:
            known = {timing.baseline: 1.0}
            if own := timing.baselines.get(timing.baseline):
                known |= {other: median / own for other, median in timing.baselines.items()}
            if name not in known or timing.speedup is None:
                break
            low = None if timing.ratio_low is None else timing.ratio_low * known[name]
            factors.append((timing.speedup * known[name], low))
        if timings and len(factors) == len(timings):
            lows = [low for _, low in factors if low is not None]
            low = geometric_mean(lows) if len(lows) == len(factors) else None
            found[name] = Speedup(value=geometric_mean([value for value, _ in factors]), low=low)
    return found


def table(rows: Sequence[Row]) -> str:
    """Markdown: one row for each problem, then one for each baseline."""
    names = [name for name in BASELINES if any(name in row.speedups for row in rows)]
    head = ["task", "state", "coverage", *[f"over {name}" for name in names], "why"]
    lines = [_line(head), _line(["---"] * len(head))]
    for row in rows:
        shown = [f"{row.speedups[name].value:.3f}" if name in row.speedups else "" for name in names]
        coverage = "" if row.coverage is None else f"{row.coverage:.0%}"
        lines.append(_line([f"`{row.task}`", row.state, coverage, *shown, row.reason.replace("|", "\\|")]))
    correct = sum(row.state == "correct" for row in rows)
    kinds = sorted({row.kind for row in rows if row.kind})
    lines += ["", f"{correct} of {len(rows)} correct; speedups are {' and '.join(kinds) or 'unknown'}.", ""]
    lines += [_line(["over", "fast@1", "fast@1.2", "geometric mean, failures as 1.0"]), _line(["---"] * 4)]
    for name in names:
        found = [row.speedups.get(name) for row in rows]
        shares = [sum(one is not None and one.reaches(least) for one in found) / len(rows) for least in (1.0, 1.2)]
        mean = geometric_mean([1.0 if one is None else one.value for one in found])
        lines.append(_line([name, *[f"{share:.0%}" for share in shares], f"{mean:.3f}"]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
