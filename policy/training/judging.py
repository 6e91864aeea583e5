"""From answers to rewards: read, applied to the parent, judged in one batch, rewarded. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaluator.errors import UsageError
from evaluator.protocol import Evaluator
from evaluator.source_hash import ast_hash
from evaluator.types import EvalStatus, Evaluation, EvaluationJob, KernelSource
from policy.edits import READ_FORMS, AnswerError, read_answer
from policy.quality import quality_of
from policy.reward import RewardInput, RewardSettings, input_of, reward_of
from policy.rewrites.base import RewriteContext
from policy.training.data import Prompt


@dataclass(frozen=True)
class Judged:
    """What became of one answer."""

    reward: float | None
    """None where our own harness failed: nothing is known of the answer."""
    program: str | None = None
    """Hash of the child's AST; None for an answer that gives no child."""
    correct: bool = False
    hack: bool = False
    speedup: float | None = None


class Judge:
    """Rewards answers. An answer is read, and a source judged, once: both are remembered for the whole training."""

    def __init__(self, evaluators: Mapping[str, Evaluator], reward: RewardSettings | None = None) -> None:
        """`evaluators` by name of the task; they stay the caller's to close."""
        self._evaluators = evaluators
        self._reward = reward or RewardSettings()
        self._known: dict[tuple[str, str], Evaluation] = {}
        self._read: dict[tuple[Prompt, str, bool], str | RewardInput] = {}
        self._rewarded: dict[tuple[str, str, str], Judged] = {}

    def judge(self, asked: Sequence[tuple[Prompt, str, bool]]) -> list[Judged]:
        """One result for each (prompt, answer, whether it was cut off), in order."""
        for one in asked:
            if one not in self._read:
                self._read[one] = self._child(*one)
        read = [self._read[one] for one in asked]
        wanted = [(asked[index][0].task, found) for index, found in enumerate(read) if isinstance(found, str)]
        self._evaluate(wanted)
        return [self._judged(prompt, found) for (prompt, _, _), found in zip(asked, read, strict=True)]

    def _child(self, prompt: Prompt, answer: str, cut: bool) -> str | RewardInput:
        """The child's source, or what an answer without a child earns."""
        context = RewriteContext.of_task(self._evaluator(prompt.task).task)
        reason = "length" if cut else "stop"
        try:
            return read_answer(answer, prompt.parent, context, READ_FORMS[prompt.form], finish_reason=reason).source
        except AnswerError as error:
            if error.kind == "unchanged":
                return RewardInput(status=EvalStatus.DUPLICATE, unchanged=True)
            return RewardInput(status=EvalStatus.SYNTAX_ERROR, parsed=False)

    def _evaluator(self, task: str) -> Evaluator:
        if task not in self._evaluators:
            raise UsageError(f"nobody judges task {task}", "give the run that its prompts come from")
        return self._evaluators[task]

    def _evaluate(self, wanted: Sequence[tuple[str, str]]) -> None:
        sources: dict[str, dict[str, KernelSource]] = {}
        for task, text in wanted:
            source = KernelSource(text=text)
            if (task, source.sha) not in self._known:
                sources.setdefault(task, {})[source.sha] = source
        for task, found in sources.items():
            jobs = [EvaluationJob(job_id=sha, source=source) for sha, source in found.items()]
            for job, evaluation in self._evaluator(task).evaluate(jobs):
                if not evaluation.status.blames_harness:
                    self._known[task, job.job_id] = evaluation

    def _judged(self, prompt: Prompt, found: str | RewardInput) -> Judged:
        if not isinstance(found, str):
            return Judged(reward_of(found, self._reward).total)
        evaluation = self._known.get((prompt.task, KernelSource(text=found).sha))
        if evaluation is None:
            return Judged(None, ast_hash(found))
        key = (prompt.task, prompt.parent, found)
        if key not in self._rewarded:
            self._rewarded[key] = self._child_judged(prompt, found, evaluation)
        return self._rewarded[key]

    def _child_judged(self, prompt: Prompt, source: str, evaluation: Evaluation) -> Judged:
        program = ast_hash(source)
        unchanged = program == ast_hash(prompt.parent)
        given = input_of(evaluation, unchanged=unchanged, quality=quality_of(source).total)
        reward = reward_of(given, self._reward).total
        return Judged(reward, program, given.correct, given.hack, given.bound if given.correct else None)


def shares(judged: Sequence[Judged], group: int) -> dict[str, float]:
    """What alarms and curves are made of; groups are `group` neighbours. Unknown answers count as failed."""
    count = len(judged)
    programs = [one.program for one in judged if one.program is not None]
    groups = [judged[start : start + group] for start in range(0, count, group)]
    rewards = [one.reward for one in judged if one.reward is not None]
    found = {
        "valid": len(programs) / count,
        "correct": sum(one.correct for one in judged) / count,
        "fast@1": sum((one.speedup or 0) > 1 for one in judged) / count,
        "fast@1.2": sum((one.speedup or 0) > 1.2 for one in judged) / count,
        "hack_rate": sum(one.hack for one in judged) / count,
        "zero_variance": sum(len({one.reward for one in members}) < 2 for members in groups) / len(groups),
    }
    if rewards:
        found["mean_reward"] = sum(rewards) / len(rewards)
    if programs:
        found["unique_ast"] = len(set(programs)) / len(programs)
    return found
