"""Scores answers that a trainer of another library samples: read, applied to the parent, judged by our evaluator.

Exports write what a score needs, the task included, into each row as its *ground truth*; `compute_score` has the
signature of verl's reward functions. Imports no trainer.
"""

from __future__ import annotations

import atexit
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

from pydantic import ValidationError

from evaluator.errors import UsageError
from evaluator.protocol import Evaluator
from evaluator.source_hash import ast_hash
from evaluator.types import EvalStatus, Evaluation, EvaluationJob, Frozen, KernelSource, Task
from policy.edits import READ_FORMS, AnswerError, read_answer
from policy.quality import quality_of
from policy.reward import RewardInput, RewardSettings, input_of, reward_of
from policy.rewrites.base import RewriteContext
from policy.types import Form

OPEN_TASKS = 4
"""Evaluators that stay open at once; each holds workers, and memory on its GPU."""
REMEMBERED = 4096
"""Verdicts that are remembered: samplers repeat themselves."""

Score = dict[str, float | str]


class GroundTruth(Frozen):
    """What an answer is judged by."""

    task: Task
    parent_source: str
    """The file that the answer edits."""
    form: Form | None = None
    """How the prompt asks to answer; None reads every form."""


class Scorer:
    """Judges one answer at a time, from any thread. Evaluators open with the first answer to their task."""

    def __init__(self, make: Callable[[Task], Evaluator], reward: RewardSettings | None = None) -> None:
        self._make = make
        self._reward = reward or RewardSettings()
        self._lock = threading.Lock()
        self._evaluators: OrderedDict[str, Evaluator] = OrderedDict()
        self._known: OrderedDict[tuple[str, str], Evaluation] = OrderedDict()

    def score(self, answer: str, truth: GroundTruth) -> Score:
        """The reward as `score`, with `status`, `correct`, `hack` and `speedup` (0 where there is none).

        Always the same keys. 0 where our own machinery failed: nothing is known of the answer.
        """
        given = self._given(answer, truth)
        total = 0.0 if given.status.blames_harness else reward_of(given, self._reward).total
        return {
            "score": total,
            "status": str(given.status),
            "correct": float(given.correct),
            "hack": float(given.hack),
            "speedup": given.speedup or 0.0,
        }

    def close(self) -> None:
        """Stop all evaluators; safe to call twice."""
        with self._lock:
            while self._evaluators:
                self._evaluators.popitem()[1].close()

    def _given(self, answer: str, truth: GroundTruth) -> RewardInput:
        context = RewriteContext.of_task(truth.task)
        forms = READ_FORMS[truth.form] if truth.form else tuple(READ_FORMS)
        try:
            source = read_answer(answer, truth.parent_source, context, forms).source
        except AnswerError as error:
            if error.kind == "unchanged":
                return RewardInput(status=EvalStatus.DUPLICATE, unchanged=True)
            return RewardInput(status=EvalStatus.SYNTAX_ERROR, parsed=False)
        with self._lock:
            evaluation = self._evaluation(truth.task, KernelSource(text=source))
        unchanged = ast_hash(source) == ast_hash(truth.parent_source)
        return input_of(evaluation, unchanged=unchanged, quality=quality_of(source).total)

    def _evaluation(self, task: Task, source: KernelSource) -> Evaluation:
        key = (task.fingerprint, source.sha)
        if key not in self._known:
            job = EvaluationJob(job_id=source.sha, source=source)
            ((_, evaluation),) = self._evaluator(task).evaluate([job])
            if evaluation.status.blames_harness:
                return evaluation
            self._known[key] = evaluation
        self._known.move_to_end(key)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return self._known[key]

    def _evaluator(self, task: Task) -> Evaluator:
        if task.fingerprint not in self._evaluators:
            if len(self._evaluators) >= OPEN_TASKS:
                self._evaluators.popitem(last=False)[1].close()
            self._evaluators[task.fingerprint] = self._make(task)
        self._evaluators.move_to_end(task.fingerprint)
        return self._evaluators[task.fingerprint]


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    *,
    evaluator: Mapping[str, Any],
    reward: Mapping[str, Any] | None = None,
    **_: Any,
) -> Score:
    """verl's reward function, once `evaluator` and `reward` (config sections of those names) are filled in.

    Raises UsageError for a ground truth that no export wrote.
    """
    truth = truth_of(ground_truth)
    return _scorer(json.dumps(dict(evaluator)), json.dumps(dict(reward or {}))).score(solution_str, truth)


@lru_cache(maxsize=256)
def truth_of(ground_truth: str) -> GroundTruth:
    """The ground truth of a row. Raises UsageError for what no export wrote."""
    try:
        return GroundTruth.model_validate_json(ground_truth)
    except ValidationError as error:
        raise UsageError(
            f"ground_truth: not what an export writes: {str(error).splitlines()[-1].strip()}",
            "export the dataset anew with this version of Kernevo: kernevo export --format verl",
        ) from None


@cache
def _scorer(evaluator: str, reward: str) -> Scorer:
    from evaluator.backends import create

    made = Scorer(lambda task: create(json.loads(evaluator), task), RewardSettings.model_validate_json(reward))
    atexit.register(made.close)
    return made
