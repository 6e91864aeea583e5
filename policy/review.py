"""A second model's look at candidates: it may object to one, with evidence, and changes no verdict.

An objection counts when it names a kind of cheating and quotes lines of code that occur in the candidate; every other
answer is no objection. What it says of sources that the evaluator refused shows how often the two agree.
"""

from __future__ import annotations

import io
import json
import logging
import time
import tokenize
from collections import Counter
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from evaluator.types import EvalStatus, Evaluation, Frozen, KernelSource, Task
from policy.hack_kinds import HackKind
from policy.prompting.text import inline, plain
from policy.review_agreement import Agreement
from policy.review_prompt import prompt_version, review_messages
from policy.review_store import ReviewStore
from policy.tool_chat import Chat

logger = logging.getLogger(__name__)

Outcome = Literal["objection", "no_objection", "void", "unparsable", "failed"]
ANSWER_CHARS = 20_000
"""Of a longer answer only the end is read: that is where a model that thinks aloud comes to its verdict."""
REASON_CHARS = 400


class ReviewAnswer(BaseModel):
    """What a reviewer is asked for; its JSON schema is sent along."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: Literal["accept", "reject"]
    kind: HackKind | None
    reason: str
    evidence: list[str] = Field(max_length=20)


class Review(Frozen):
    """What came of one review."""

    candidate_sha: str
    reviewer: str
    """The model's name."""
    prompt_version: str
    outcome: Outcome
    """`void`: a rejection without a kind or real evidence. `failed`: no answer. Only `objection` rejects."""
    kind: HackKind | None = None
    reason: str = ""
    evidence: tuple[str, ...] = ()
    cached: bool = False
    seconds: float = 0.0
    """That the answer took."""

    @property
    def rejects(self) -> bool:
        """Whether the reviewer objects, with evidence."""
        return self.outcome == "objection"


class Reviewer:
    """Reviews candidates of any task with one model. One caller at a time.

    Answers are kept below `folder` (None keeps none) by candidate, task, model and prompt version. What is kept is what
    the model said, which is judged anew when it is read: a file cannot make an objection that has no evidence.
    """

    def __init__(self, chat: Chat, folder: Path | None = None) -> None:
        self._chat = chat
        self._store = ReviewStore(folder, chat.model, prompt_version(answer_schema()))
        self._outcomes: Counter[Outcome] = Counter()
        self._pairs: Counter[tuple[bool, bool]] = Counter()

    def review(self, source: KernelSource, task: Task) -> Review:
        """The reviewer's word on `source`. Never raises for what the model or its server does."""
        kept = self._store.get(source, task)
        if kept is not None:
            return self._counted(self._read(source, kept).model_copy(update={"cached": True}))
        started = time.monotonic()
        try:
            answer = self._chat.complete(review_messages(source, task), None, answer_schema())
        except Exception as error:  # whatever a reviewer's server or client does, the candidate stays as it was judged
            logger.warning("no review of %s: %s", source.sha[:12], error)
            return self._counted(self._made(source, "failed", reason=inline(str(error))))
        review = self._read(source, answer.text).model_copy(update={"seconds": time.monotonic() - started})
        if review.outcome != "unparsable":  # asked again, the model may answer in form
            self._store.put(source, task, answer.text)
        return self._counted(review)

    def compare(self, source: KernelSource, task: Task, evaluation: Evaluation) -> Review:
        """Like `review`, and count whether the reviewer agrees with what the evaluator said of `source`."""
        review = self.review(source, task)
        said_something = review.outcome in ("objection", "no_objection")
        if said_something and (evaluation.status.passed or _may_be_cheating(evaluation.status)):
            self._pairs[review.rejects, not evaluation.status.passed] += 1
        return review

    def counts(self) -> dict[str, int]:
        """Reviews by outcome."""
        return dict(sorted(self._outcomes.items()))

    def agreement(self) -> Agreement:
        """How often reviewer and evaluator said the same of what `compare` was given."""
        pairs = self._pairs
        return Agreement(
            both_accept=pairs[False, False],
            both_reject=pairs[True, True],
            only_reviewer_rejects=pairs[True, False],
            only_evaluator_rejects=pairs[False, True],
        )

    def _counted(self, review: Review) -> Review:
        self._outcomes[review.outcome] += 1
        return review

    def _read(self, source: KernelSource, text: str) -> Review:
        answer = read_answer(text)
        if answer is None:
            return self._made(source, "unparsable")
        outcome: Outcome = "no_objection"
        if answer.verdict == "reject":
            proven = answer.kind is not None and evidence_holds(answer.evidence, source.text)
            outcome = "objection" if proven else "void"
        reason = inline(answer.reason)[:REASON_CHARS]
        evidence = tuple(plain(line) for line in answer.evidence)
        return self._made(source, outcome, kind=answer.kind, reason=reason, evidence=evidence)

    def _made(self, source: KernelSource, outcome: Outcome, **more: Any) -> Review:
        version = self._store.prompt_version
        return Review(
            candidate_sha=source.sha, reviewer=self._chat.model, prompt_version=version, outcome=outcome, **more
        )


def answer_schema() -> dict[str, Any]:
    """JSON schema of an answer."""
    return ReviewAnswer.model_json_schema()


def read_answer(text: str) -> ReviewAnswer | None:
    """The last object of the answer's form in `text`, whatever stands around it; None when there is none."""
    text = text[-ANSWER_CHARS:]
    decoder = json.JSONDecoder()
    found, start = None, text.find("{")
    while start >= 0:
        end = start + 1
        try:
            value, after = decoder.raw_decode(text, start)
            found, end = ReviewAnswer.model_validate(value), after
        except (ValueError, RecursionError):  # ValidationError is a ValueError
            pass
        start = text.find("{", end)
    return found


def evidence_holds(evidence: list[str], source: str) -> bool:
    """Whether every quoted line is a whole line of `source`, spacing aside, and one of them at least is code."""
    lines = {_squeezed(line) for line in source.split("\n")}
    quoted = {_squeezed(line) for quote in evidence for line in quote.split("\n") if line.strip()}
    return quoted <= lines and not quoted.isdisjoint(_code_lines(source))


def _code_lines(source: str) -> set[str]:
    """The lines that a name or keyword of code stands on, comments and strings not counted."""
    numbers = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.NAME:
                numbers.add(token.start[0])
    except (tokenize.TokenError, SyntaxError):
        return set()
    return {_squeezed(line) for number, line in enumerate(source.split("\n"), start=1) if number in numbers}


def _squeezed(line: str) -> str:
    return " ".join(plain(line).split())


def _may_be_cheating(status: EvalStatus) -> bool:
    """Whether a refusal is about what a reviewer looks for, and not about a mistake, a crash or the harness."""
    return status.is_hack or status in (EvalStatus.SUSPICIOUS, EvalStatus.WRONG_VALUE, EvalStatus.PRECISION)
