"""`evaluate_kernel`: the judge's answer about a draft, a few times for each candidate."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pydantic import Field

from evaluator.types import Evaluation, KernelSource
from policy.tools.base import Found, Tool, ToolAnswer, ToolArgs, ToolError

logger = logging.getLogger(__name__)


class EvaluateKernelArgs(ToolArgs):
    """Arguments of `evaluate_kernel`."""

    source: str = Field(min_length=1, description="The whole Python file with ModelNew and its Triton kernels.")


class EvaluateKernel(Tool[EvaluateKernelArgs]):
    """Judges drafts as candidates are judged: verdict, reason, explanation and latency.

    At most `budget` sources reach the evaluator; one that was judged already is answered from memory.
    """

    name = "evaluate_kernel"
    description = (
        "Judge a draft before you answer: whether it compiles and is right, and how fast it is. "
        "You have few calls for each answer."
    )
    Args = EvaluateKernelArgs

    def __init__(self, evaluate: Callable[[KernelSource], Evaluation], budget: int) -> None:
        self._evaluate = evaluate
        self._left = budget
        self._budget = budget
        self._judged: dict[str, Evaluation] = {}

    def answer(self, args: EvaluateKernelArgs, room: int) -> ToolAnswer:
        """The verdict on `args.source`. Raises ToolError when the budget is spent or the evaluator fails."""
        source = KernelSource(text=args.source)
        if source.sha not in self._judged:
            self._judged[source.sha] = self._judge(source)
        evaluation = self._judged[source.sha]
        said = "\n".join(part for part in (evaluation.reason.strip(), evaluation.explain.strip()) if part)
        lines = [_verdict(evaluation), *_latencies(evaluation), f"Evaluations left: {self._left} of {self._budget}."]
        found = (Found(title="What the judge said:", text=said),) if said else ()
        return ToolAnswer(summary="\n".join(lines), found=found)

    def _judge(self, source: KernelSource) -> Evaluation:
        if self._left <= 0:
            raise ToolError(f"all {self._budget} evaluations of this candidate are used; answer with what you know")
        self._left -= 1
        try:
            return self._evaluate(source)
        except Exception as error:  # the evaluator's failure is not the model's, and must not end its answer
            logger.exception("evaluate_kernel: the evaluator failed")
            raise ToolError("the evaluator failed, which says nothing about the kernel; answer without it") from error


def _verdict(evaluation: Evaluation) -> str:
    if evaluation.status.blames_harness:
        return f"Verdict: {evaluation.status}. The evaluator failed, which says nothing about the kernel."
    if not evaluation.status.passed:
        return f"Verdict: {evaluation.status}."
    speedup = evaluation.speedup
    faster = "" if speedup is None else f", {speedup:.3f}x the baseline"
    return f"Verdict: passed{faster} ({evaluation.kind} latency, {evaluation.target or 'unknown target'})."


def _latencies(evaluation: Evaluation) -> list[str]:
    return [
        f"Latency of {name}: {timing.median_ms:.4g} ms ({timing.kind})" for name, timing in evaluation.timings.items()
    ]
