"""A task, a judge that needs no Triton, and turns for the tests of training."""

from __future__ import annotations

from functools import lru_cache

from evaluator.source_hash import ast_hash
from evaluator.task import load_task
from evaluator.types import EvalStatus, KernelSource
from policy.applicable import Applicable
from policy.edits import read_answer
from policy.rewrites.base import RewriteContext
from policy.training.choices import answers_of
from policy.training.data import Prompt, Source
from policy.training.settings import TrainingSettings
from policy.types import Message
from tests.policy.turns import evaluation, turn

TASK = load_task("softmax")
SEED = TASK.seed_source or ""
PROMPT = Prompt("softmax", (Message(role="user", content="make it fast"),), SEED, "structured")


@lru_cache
def answers() -> list[str]:
    """Every structured answer about the seed."""
    return answers_of(PROMPT, TASK, Applicable())


def child(answer: str) -> str:
    """What an answer makes of the seed."""
    return read_answer(answer, SEED, RewriteContext.of_task(TASK)).source


def turns(count: int = 6, **changes):
    """Turns about the seed, each faster than the one before."""
    made = []
    for number, answer in enumerate(answers()[:count], start=1):
        source = child(answer)
        given = {
            "messages": PROMPT.messages,
            "answer": answer,
            "source": source,
            "source_sha": KernelSource(text=source).sha,
            "ast_hash": ast_hash(source),
            "parent_source": SEED,
            "speedup": 1 + number / 10,
            "reward": number / 10,
        }
        made.append(turn(number, **{**given, **changes}))
    return made


def source(run: str = "r", reward: str = "shaped", **changes) -> Source:
    """A run's turns."""
    return Source(run, tuple(turns(**changes)), reward)


def settings(**changes) -> TrainingSettings:
    """A training that takes a second."""
    given = {"method": "grpo", "base": "model", "steps": 2, "group": 2, "prompts": 1, "micro_batch": 2}
    return TrainingSettings.model_validate({**given, "learning_rate": 1e-3, "rank": 4, "save_every": 1, **changes})


class LengthJudge:
    """Shorter files are faster; `statuses` by answer's child say otherwise."""

    def __init__(self, *statuses: EvalStatus) -> None:
        self.task = TASK
        self.judged: list[str] = []
        self._statuses = statuses

    def evaluate(self, jobs):
        for job in jobs:
            self.judged.append(job.source.sha)
            status = self._statuses[0] if self._statuses else EvalStatus.PASSED
            speedup = 2 * len(SEED) / len(job.source.text)
            yield job, evaluation(job.source.text, status, speedup=speedup)

    def close(self) -> None:
        pass

    def __enter__(self):
        return self

    def __exit__(self, *details) -> None:
        pass


class SmallSteps(LengthJudge):
    """Passes children that hardly grow; all others are wrong."""

    def evaluate(self, jobs):
        for job in jobs:
            grows = len(job.source.text) - len(SEED)
            status = EvalStatus.PASSED if grows <= 30 else EvalStatus.WRONG_VALUE
            yield job, evaluation(job.source.text, status, speedup=3.0)
