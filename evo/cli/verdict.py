"""A verdict for people: the same words wherever a command shows one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evo.cli import output

if TYPE_CHECKING:
    from evaluator.types import Evaluation, Timing


def facts_of(evaluation: Evaluation) -> dict[str, object]:
    """Verdict, checks, reason, error, speedup and bottleneck; numbers carry their kind."""
    facts: dict[str, object] = {
        "verdict": str(evaluation.status),
        "checks": f"{evaluation.checks_passed} of {evaluation.checks_total} passed",
    }
    if evaluation.reason:
        facts["reason"] = evaluation.reason
    if evaluation.max_error is not None:
        facts["largest error"] = f"{evaluation.max_error:.3g}"
    if evaluation.speedup is not None:
        over = ", ".join(sorted({timing.baseline for timing in evaluation.timings.values()}))
        over = "the task's seed" if over == "seed" else over
        facts["speedup"] = f"{evaluation.speedup:.3f}x {evaluation.kind} ({evaluation.target}) over {over}".rstrip()
    if evaluation.profile is not None:
        facts["bound by"] = f"{evaluation.profile.bottleneck} ({evaluation.profile.kind})"
    return facts


def print_tables(evaluation: Evaluation) -> None:
    """The stages it went through, and the timing of each workload."""
    if evaluation.stages:
        print()
        stages = [(stage.name, str(stage.status), f"{stage.seconds:.2f}", stage.detail) for stage in evaluation.stages]
        output.print_table(("stage", "verdict", "seconds", "detail"), stages)
    if evaluation.timings:
        print()
        rows = [_timing_row(name, timing, evaluation.target) for name, timing in evaluation.timings.items()]
        output.print_table(("workload", "latency ms", "80 % range ms", "baseline ms", "speedup", "kind"), rows)


def _timing_row(name: str, timing: Timing, target: str) -> tuple[str, ...]:
    baseline = "-" if timing.baseline_ms is None else f"{timing.baseline_ms:.4g}"
    speedup = "-" if timing.speedup is None else f"{timing.speedup:.3f}x"
    return (name, f"{timing.median_ms:.4g}", _range(timing), baseline, speedup, f"{timing.kind} ({target})")


def _range(timing: Timing) -> str:
    """Where 80 % of measured kernels of such a modelled latency lie; `-` where nobody knows."""
    if timing.spread_low is None or timing.spread_high is None:
        return "-"
    return f"{timing.median_ms * timing.spread_low:.3g} to {timing.median_ms * timing.spread_high:.3g}"
