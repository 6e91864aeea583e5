"""What a run has cost: time, judging, GPU, training, tokens and dollars."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from evaluator.types import Evaluation
from evo.candidate import Record
from evo.run import Run
from evo.spending import gpu_seconds


@dataclass(frozen=True)
class Cost:
    """Sums over all sessions of a run; seconds unless a name says otherwise."""

    sessions: int
    wall: float
    """By the clock, up to the last line that says so."""
    judging: float
    """Of all candidates, several at once counted each; verdicts from the cache cost nothing."""
    gpu: float
    training: float
    trainings: int
    tokens: int
    dollars: float


def cost_of(run: Run, records: Iterable[Record]) -> Cost:
    """What `run` has cost so far."""
    learned, spent, sessions = run.learned(), run.spent(), run.sessions()
    evaluations = [record.evaluation for record in records]
    clocks = [line.seconds for lines in (run.generations(), sessions, learned, spent) for line in lines]
    return Cost(
        sessions=sum(session.event == "begin" for session in sessions),
        wall=max((clock for clock in clocks if math.isfinite(clock)), default=0.0),
        judging=math.fsum(finite_or_0(one.seconds) for one in evaluations if not one.cached),
        gpu=math.fsum(finite_or_0(gpu_seconds(one)) for one in evaluations),
        training=math.fsum(one.took_s for one in learned),
        trainings=len(learned),
        tokens=sum(one.tokens for one in spent),
        dollars=math.fsum(one.dollars for one in spent),
    )


def judge_seconds(evaluation: Evaluation) -> float:
    """What one verdict cost: seconds of the GPU where one judged, else of the judge; 0 from the cache."""
    if evaluation.evaluator == "gpu":
        return finite_or_0(gpu_seconds(evaluation))
    return 0.0 if evaluation.cached else finite_or_0(evaluation.seconds)


def finite_or_0(value: float) -> float:
    """The number, or 0 where it is none."""
    return value if math.isfinite(value) else 0.0
