"""Verdicts as exceptions, and what may be refused about a worker's reports before their contents are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evaluator.cascade import Verdict
from evaluator.gpu_cases import DeviceCase
from evaluator.types import EvalStatus


class RefusedError(Exception):
    """A candidate's verdict, from wherever it becomes clear."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


def verdict(status: EvalStatus | None, reason: str, hint: str = "") -> Verdict:
    """A verdict whose explanation is the reason and what to do."""
    assert status is not None
    return Verdict(status, reason, f"{reason}\n{hint}".strip())


def refused(status: EvalStatus, reason: str, hint: str = "") -> RefusedError:
    """The exception that carries a verdict."""
    return RefusedError(verdict(status, reason, hint))


def reports(answer: Any, key: str) -> list[Any]:
    """A worker's list of reports. Raises `RefusedError` when it is none."""
    shown = answer.get(key) if isinstance(answer, dict) else None
    if not isinstance(shown, list):
        raise refused(EvalStatus.HARNESS_TAMPER, f"the worker's answer has no {key}")
    return shown


def check_layout(case: DeviceCase, shown: list[Any]) -> None:
    """Right values in a memory layout that nobody asked for would move work to whoever uses them."""
    for index, (expected, report) in enumerate(zip(case.expected, shown, strict=True)):
        try:
            stride = tuple(int(step) for step in report["stride"])
        except (KeyError, TypeError, ValueError):
            raise refused(EvalStatus.HARNESS_TAMPER, "the worker reports no strides") from None
        plain = _contiguous(expected.shape)
        steps = {_steps(expected.shape, one) for one in (expected.stride(), plain)}
        if expected.numel() > 1 and _steps(expected.shape, stride) not in steps:
            text = f"{case.label}: output {index} has strides {stride} where the reference has {expected.stride()}"
            raise refused(EvalStatus.WRONG_SHAPE, text, "return a contiguous tensor, or the reference's layout")


def _steps(shape: Sequence[int], stride: Sequence[int]) -> tuple[int, ...]:
    """Strides that matter: those of dimensions with more than one element."""
    return tuple(step for size, step in zip(shape, stride, strict=False) if size > 1)


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= size
    return tuple(reversed(steps))
