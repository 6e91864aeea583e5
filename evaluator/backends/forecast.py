"""What the cost model says of sources whose structure is known to be correct: compiled and traced, not checked."""

from __future__ import annotations

from evaluator.backends.cpu import CpuEvaluator
from evaluator.types import Evaluation, KernelSource


class Forecaster(CpuEvaluator):
    """The cpu evaluator without its checks and its baseline: a pass says how long a kernel may take, not that it is
    right. Settings are those of `CpuEvaluator`.
    """

    name = "forecast"
    revision = 1

    def _prepare(self) -> None:
        self._start()

    def _judge(self, source: KernelSource) -> Evaluation:
        return self._walked(source, self._start().forecast())
