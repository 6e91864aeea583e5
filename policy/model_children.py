"""The part of a model policy that computes: prompts from requests, children from answers. Asks nobody.

For one thread at a time: what it remembers is not locked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluator import static_checks
from evaluator.source_hash import ast_hash
from evaluator.tunables import extract
from evaluator.types import EvalStatus, KernelSource, Task
from policy.answers.tunables import read_tuning, tunables_schema
from policy.applicable import Applicable, parses
from policy.attempts import AttemptStore
from policy.chat import Answer, AskError, Question
from policy.context import WIDTH, Context
from policy.edits import READ_FORMS, AnswerError, Edit, read_answer
from policy.prompting import Phase, Prompt, PromptTooLongError, Repair, build_prompt
from policy.reward import RewardSettings
from policy.rewrites.base import RewriteContext
from policy.rewrites.catalogue import json_schema, one_step_schema, rewrite_named
from policy.tokens import ByRatio, TokenCounter
from policy.types import Form, ParentView, Proposal, ProposalRequest

# Keeps this draw apart from what else is drawn from a request's seed.
_TUNING = 0x74756E65


@dataclass(frozen=True)
class Child:
    """A readable answer. `objection` is what the static stage has against it; empty when nothing."""

    edit: Edit
    program: str
    objection: str = ""


@dataclass(frozen=True)
class Unusable:
    """An answer that gives no child."""

    kind: str
    words: str
    """For the model."""


class Workshop:
    """Makes prompts and reads answers, in one form."""

    def __init__(
        self,
        form: Form = "structured",
        *,
        rewrites: Sequence[str] | None = None,
        max_steps: int = 1,
        tokens: TokenCounter | None = None,
        reward: RewardSettings | None = None,
        attempts: AttemptStore | None = None,
        width: int = WIDTH,
        notes: Sequence[str] = (),
    ) -> None:
        self.form = form
        self._max_steps = max_steps
        self._applicable = Applicable(rewrites)
        self.tokens = tokens or ByRatio()
        self._reward = reward
        self._attempts = attempts
        self._context = Context(width, reward)
        self._notes = tuple(notes)

    @property
    def rewrites(self) -> tuple[str, ...]:
        """Names of the rewrites that answers may use."""
        return tuple(self._applicable.rewrites)

    def phase(self, request: ProposalRequest, tune: float) -> Phase | None:
        """What to ask for; None for a parent that does not parse, or to which no answer of the form could apply.

        A share `tune` of the requests, drawn by their seeds, asks for another config of a correct parent.
        """
        parent = request.parents[0]
        if not parses(parent.source.text):
            return None
        drawn = tune > 0 and np.random.default_rng([request.seed, _TUNING]).random() < tune
        if drawn and parent.evaluation is not None and parent.evaluation.status.passed:
            space = extract(parent.source.text)
            if any(len(tunable.choices) > 1 for tunable in space.tunables):
                return "tune"
        return "generate" if self.form != "structured" or self._rewrites(request) else None

    def in_context(self, request: ProposalRequest) -> ProposalRequest:
        """The request with those attempts alone that its prompts show, from the store as it is now."""
        stored = () if self._attempts is None else self._attempts.attempts(request.task)
        return self._context.of(request, stored)

    def prompt(
        self,
        request: ProposalRequest,
        budget: int,
        *,
        phase: Phase = "generate",
        analysis: str = "",
        repair: Repair | None = None,
    ) -> Prompt:
        """The prompt of one phase, all attempts of the request in it. Raises AskError("context_overflow")."""
        try:
            return build_prompt(
                request,
                phase=phase,
                form=self.form,
                budget=budget,
                tokens=self.tokens,
                applicable=self._rewrites(request),
                analysis=analysis,
                notes=self._notes,
                strategy=request.strategy,
                repair=repair,
                reward=self._reward,
            )
        except PromptTooLongError as error:
            raise AskError("context_overflow", error.message, error.hint) from None

    def _rewrites(self, request: ProposalRequest) -> dict[str, Any]:
        return self._applicable.all(request.parents[0].source.text, RewriteContext.of_task(request.task))

    def schema(self, request: ProposalRequest, phase: Phase = "generate") -> dict[str, Any] | None:
        """The JSON schema that an answer is held to; None for forms that are text."""
        if phase == "tune":
            return tunables_schema(request.parents[0].source.text)
        if self.form != "structured":
            return None
        applicable = self._rewrites(request)
        return one_step_schema(applicable) if self._max_steps == 1 else json_schema(list(applicable), self._max_steps)

    def read(self, request: ProposalRequest, answer: Answer, phase: Phase = "generate") -> Child | Unusable:
        """The child that an answer makes of the first parent, with what the static stage says of it."""
        try:
            edit = self._edit(request, answer, phase)
        except AnswerError as error:
            return Unusable(error.kind, str(error))
        left_out = [step.name for step in edit.rewrites if step.name not in self._applicable.rewrites]
        if left_out:
            known = ", ".join(self._applicable.rewrites)
            return Unusable("unknown_rewrite", f"{left_out[0]} may not be used here; these may: {known}")
        verdict = static_checks.check(edit.source, request.task)
        if verdict.status is None:
            return Child(edit, ast_hash(edit.source))
        if verdict.status is EvalStatus.REJECTED_STATIC:
            return Child(edit, ast_hash(edit.source), verdict.explain)
        return Unusable(str(verdict.status), verdict.explain)

    def keep(self, task: Task, judged: Sequence[ParentView]) -> None:
        """Put judged candidates into the store, where there is one. Any thread may call it."""
        if self._attempts is not None:
            self._attempts.add(task, judged)

    def _edit(self, request: ProposalRequest, answer: Answer, phase: Phase) -> Edit:
        parent = request.parents[0].source.text
        if phase != "tune":
            context = RewriteContext.of_task(request.task)
            return read_answer(answer.text, parent, context, READ_FORMS[self.form], finish_reason=answer.finish_reason)
        found = read_tuning(answer.text, parent, finish_reason=answer.finish_reason)
        return Edit(
            found.source,
            "tunables",
            explanation=found.explanation,
            tolerated=found.tolerated,
            tunables=found.config,
        )

    def forget(self) -> None:
        """Drop what is remembered of sources, and let go of store and tokenizer; for the end."""
        self._applicable.clear()
        self.tokens.close()
        self._context.forget()
        if self._attempts is not None:
            self._attempts.close()


def proposal_of(
    request: ProposalRequest, child: Child, question: Question, answer: Answer, policy: str, **sampling: Any
) -> Proposal:
    """The proposal of one answer. Its sampling holds what `docs/llm.md` lists."""
    edit = child.edit
    told = {
        "model": answer.model,
        "form": edit.form,
        "tolerated": list(edit.tolerated) or None,
        "seed": question.seed,
        "max_tokens": question.max_tokens,
        "finish_reason": answer.finish_reason,
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "dollars": answer.dollars,
        "prompt_token_ids": answer.prompt_token_ids,
        "answer_token_ids": answer.answer_token_ids,
        "logprobs": answer.logprobs,
        "model_logprobs": answer.model_logprobs,
        **sampling,
    }
    return Proposal(
        source=KernelSource(text=edit.source),
        operator=request.operator,
        rewrites=edit.rewrites,
        tunables=edit.tunables,
        explanation=edit.explanation or _told(edit) or f"{edit.form} answer of {answer.model}",
        policy=policy,
        policy_version=sampling.get("asked_model", answer.model),
        messages=question.messages,
        answer=answer.text,
        sampling={name: value for name, value in told.items() if value is not None},
    )


def _told(edit: Edit) -> str:
    if edit.tunables:
        return ", ".join(f"{name} = {value}" for name, value in edit.tunables.items())
    rewrites = [(rewrite_named(step.name), step.args) for step in edit.rewrites]
    return "; ".join(rewrite.explain(rewrite.parse_args(args)) for rewrite, args in rewrites)
