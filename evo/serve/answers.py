"""From a judged job to its answer: the evaluator's verdict, what it earns, and KernelGYM's words for both."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from evaluator.types import EvalStatus, Evaluation, geometric_mean
from evo.serve.records import Answer
from policy.quality import quality_of
from policy.reward import RewardSettings, coverage_of, input_of, reward_of

if TYPE_CHECKING:
    from evo.serve.jobs import Job

_NOT_COMPILED = frozenset(
    {
        EvalStatus.SYNTAX_ERROR,
        EvalStatus.MISSING_ENTRY_POINT,
        EvalStatus.REJECTED_STATIC,
        EvalStatus.COMPILE_ERROR,
        EvalStatus.RESOURCE_LIMIT,
    }
)
_CODES = {
    EvalStatus.SYNTAX_ERROR: "SYNTAX_ERROR",
    EvalStatus.MISSING_ENTRY_POINT: "VALIDATION_ERROR",
    EvalStatus.REJECTED_STATIC: "VALIDATION_ERROR",
    EvalStatus.COMPILE_ERROR: "COMPILATION_ERROR",
    EvalStatus.TIMEOUT: "TIMEOUT_ERROR",
    EvalStatus.RESOURCE_LIMIT: "RESOURCE_ERROR",
    EvalStatus.OUT_OF_MEMORY: "RESOURCE_ERROR",
    EvalStatus.OUTPUT_LIMIT: "RESOURCE_ERROR",
    EvalStatus.PROCESS_LIMIT: "RESOURCE_ERROR",
    EvalStatus.RUNTIME_ERROR: "RUNTIME_ERROR",
    EvalStatus.CRASHED: "RUNTIME_ERROR",
    EvalStatus.EXITED: "RUNTIME_ERROR",
}
"""KernelGYM's error codes; what is not here is a CORRECTNESS_ERROR."""


def answer_of(job: Job, rewards: RewardSettings) -> Answer:
    """What to say about a job now."""
    judged = {} if job.evaluation is None else _judged(job.evaluation, job, rewards)
    error = {"error_message": job.error, "error_code": job.error_code} if job.error else {}
    return Answer(
        task_id=job.id,
        status=job.state,
        submitted_at=_at(job.submitted),
        completed_at=_at(job.completed),
        processing_time=None if job.started is None or job.completed is None else job.completed - job.started,
        ignored=job.request.ignored,
        **{**judged, **error},
    )


def _judged(evaluation: Evaluation, job: Job, rewards: RewardSettings) -> dict[str, Any]:
    status = evaluation.status
    said: dict[str, Any] = {
        "verdict": str(status),
        "explain": evaluation.explain or evaluation.reason,
        "metadata": _metadata(evaluation),
    }
    if status.blames_harness:  # nothing is known about the kernel, so nothing is said and nothing is earned
        return said
    quality = quality_of(job.source.text).total if rewards.type == "weighted" else 0.0
    reward = reward_of(input_of(evaluation, unchanged=job.request.repeats_parent, quality=quality), rewards)
    baselines = [timing.baseline_ms for timing in evaluation.timings.values()]
    known = [value for value in baselines if value is not None]
    whole = bool(known) and len(known) == len(baselines)
    failed = {} if status.passed else {"error_message": evaluation.reason, "error_code": _code(status)}
    return {
        **said,
        **failed,
        "correct": status.passed,
        "correctness": status.passed,
        "compiled": status not in _NOT_COMPILED,
        "decoy_kernel": status.is_hack,
        "speedup": evaluation.speedup,
        "timing_kind": evaluation.kind,
        "reward": reward.total,
        "reward_components": reward.components,
        "kernel_runtime": evaluation.latency_ms,
        "reference_runtime": geometric_mean(known) if whole else None,
    }


def _code(status: EvalStatus) -> str:
    return _CODES.get(status, "CORRECTNESS_ERROR")


def _metadata(evaluation: Evaluation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "evaluator": evaluation.evaluator,
        "evaluator_version": evaluation.evaluator_version,
        "target": evaluation.target,
        "checks_passed": evaluation.checks_passed,
        "checks_total": evaluation.checks_total,
        "max_error": _finite(evaluation.max_error),
        "cached": evaluation.cached,
        "stages": [{"name": stage.name, "status": str(stage.status)} for stage in evaluation.stages],
        "timings": {name: _plain(timing.model_dump(mode="json")) for name, timing in evaluation.timings.items()},
        "bottleneck": evaluation.profile.bottleneck if evaluation.profile else "",
    }
    coverage, latency = coverage_of(evaluation), evaluation.latency_ms
    if coverage is not None and latency is not None:
        # KernelGYM's trainer divides the one by the other.
        found |= {
            "coverage": coverage,
            "total_kernel_run_time_in_profiling_us": 1e3 * latency,
            "custom_kernel_cuda_time_in_profiling_us": 1e3 * latency * coverage,
        }
    return found


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _finite(value) if isinstance(value, float) else value for name, value in values.items()}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _at(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
