"""From a model's answer to a child's source: `read_answer`. Reads text and runs nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from evaluator.source_hash import ast_hash
from evaluator.syntax import parse
from policy.answers.errors import AnswerError, AnswerKind
from policy.rewrites.base import RewriteContext, RewriteError
from policy.rewrites.catalogue import apply_steps
from policy.types import RewriteStep

__all__ = ["AnswerError", "AnswerKind", "Edit", "Form", "read_answer"]

Form = Literal["structured", "diff", "full"]


@dataclass(frozen=True)
class Edit:
    """A child that an answer describes."""

    source: str
    """The child's whole file; it parses, defines ModelNew and differs from the parent."""
    form: Form
    rewrites: tuple[RewriteStep, ...] = ()
    """The steps of a structured answer; applied to the parent they give `source`."""
    explanation: str = ""
    """The first lines of what the answer says around its code."""
    tolerated: tuple[str, ...] = ()
    """What was mended to make sense of the answer, one phrase each."""


def read_answer(
    answer: str,
    parent: str,
    context: RewriteContext,
    forms: Sequence[Form] = ("structured", "diff", "full"),
    *,
    finish_reason: str = "stop",
) -> Edit:
    """The child that `answer` makes of `parent`, in one of the allowed `forms`.

    `finish_reason` is what the server said; `"length"` means that the answer was cut off. Raises AnswerError.
    """
    if not answer.strip():
        raise AnswerError("empty", "the answer is empty", "answer with code")
    try:
        steps = tuple(RewriteStep.model_validate(step) for step in json.loads(answer)["steps"])
    except (ValueError, TypeError, KeyError):
        found = re.search(r"```(?:python)?\n(.*?)```", answer, re.DOTALL)
        if found is None or "full" not in forms:
            raise AnswerError("no_code", "the answer holds no code", "answer with the file in a fence") from None
        parse(found.group(1))
        return Edit(found.group(1), "full")
    try:
        source = apply_steps(parent, steps, context)
    except RewriteError as error:
        raise AnswerError("does_not_apply", str(error), "choose a rewrite that applies") from None
    if ast_hash(source) == ast_hash(parent):
        raise AnswerError("unchanged", "the program is unchanged", "change something")
    return Edit(source, "structured", steps)
