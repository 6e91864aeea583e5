"""From a model's answer to a child's source: `read_answer`. Reads text and runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from policy.answers import programs
from policy.answers.errors import AnswerError, AnswerKind
from policy.answers.hunks import find_hunks
from policy.answers.locate import apply_hunks
from policy.answers.steps import SHAPE, apply_all, find_payload, steps_of
from policy.answers.text import Answer, clean, prose
from policy.rewrites.base import RewriteContext
from policy.types import RewriteStep

__all__ = ["READ_FORMS", "AnswerError", "AnswerKind", "Edit", "Form", "read_answer"]

Form = Literal["structured", "diff", "full"]

ASKED: dict[Form, str] = {
    "structured": f"one JSON object {SHAPE}",
    "diff": "search/replace blocks (<<<<<<< SEARCH, =======, >>>>>>> REPLACE)",
    "full": "the whole file in one ```python fence",
}

READ_FORMS: dict[Form, tuple[Form, ...]] = {
    "structured": ("structured",),
    "diff": ("diff", "full"),
    "full": ("full", "diff"),
}
"""Form asked for -> forms that are read."""


@dataclass(frozen=True)
class Edit:
    """A child that an answer describes."""

    source: str
    """The child's whole file; it parses, defines ModelNew and differs from the parent."""
    form: Form | Literal["tunables"]
    rewrites: tuple[RewriteStep, ...] = ()
    """The steps of a structured answer; applied to the parent they give `source`."""
    explanation: str = ""
    """The first lines of what the answer says around its code."""
    tolerated: tuple[str, ...] = ()
    """What was mended to make sense of the answer, one phrase each."""
    tunables: Mapping[str, int] = field(default_factory=dict)
    """The values that changed, where the answer chose values for the parent's tunables."""


def read_answer(
    answer: str,
    parent: str,
    context: RewriteContext,
    forms: Sequence[Form] = ("structured", "diff", "full"),
    *,
    finish_reason: str = "stop",
) -> Edit:
    """The child that `answer` makes of `parent`, in one of the allowed `forms`.

    Where an answer holds several forms, the first that gives a child counts: edits, then a whole file, then steps.
    `finish_reason` is what the server said; `"length"` means that the answer was cut off. Raises AnswerError, and
    nothing else whatever the answer holds.
    """
    notes: list[str] = []
    cleaned = clean(answer, parent, finish_reason == "length", notes)
    if not cleaned.text.strip():
        raise _empty(answer, cleaned, forms)
    errors: list[AnswerError] = []
    for form in _order(cleaned, forms):
        said: list[str] = []
        try:
            found = READERS[form](_Reading(cleaned, parent, context, forms, said))
        except AnswerError as error:
            errors.append(error)
            continue
        if found is not None:
            explanation = prose(cleaned, found.used)
            return Edit(found.source, form, found.steps, explanation, tuple(dict.fromkeys([*notes, *said])))
    if errors:
        # A file that is quoted and left as it is says less than what else is wrong.
        raise next((error for error in errors if error.kind != "unchanged"), errors[0])
    raise _nothing(cleaned, forms)


@dataclass(frozen=True)
class _Reading:
    """What a reader of one form is given."""

    answer: Answer
    parent: str
    context: RewriteContext
    forms: Sequence[Form]
    notes: list[str]


@dataclass(frozen=True)
class _Found:
    """What it finds: the child, the steps to it, and the lines of the answer that say so."""

    source: str
    steps: tuple[RewriteStep, ...] = ()
    used: Sequence[range] = ()


def _order(answer: Answer, forms: Sequence[Form]) -> list[Form]:
    """Edits come first, and steps before snippets of code, but behind a whole file."""
    whole: list[Form] = ["full", "structured"] if programs.has_model(answer) else ["structured", "full"]
    return [form for form in ("diff", *whole) if form in forms]


def _structured(reading: _Reading) -> _Found | None:
    payload = find_payload(reading.answer, only=set(reading.forms) == {"structured"})
    if payload is None:
        return None
    reading.notes.extend(payload.notes)
    steps = steps_of(payload.value, reading.notes)
    source = apply_all(reading.parent, steps, reading.context)
    programs.check_kept(source, reading.parent)
    programs.check_changed(source, reading.parent)
    return _Found(source, steps, [payload.lines])


def _diff(reading: _Reading) -> _Found | None:
    hunks = find_hunks(reading.answer, reading.notes)
    if not hunks:
        return None
    child = apply_hunks(_unix(reading.parent), hunks, reading.notes)
    hint = "that is the file after the edits: answer with edits of the parent that leave it a program"
    child = programs.finished(child, reading.parent, hint, reading.notes)
    return _Found(child, used=[hunk.lines for hunk in hunks])


def _full(reading: _Reading) -> _Found | None:
    answer = reading.answer
    if answer.cut and (answer.unclosed or not answer.fences):
        return _complete(reading)
    blocks = programs.codes(answer, reading.notes)
    if not blocks:
        return None
    if answer.unclosed:
        reading.notes.append("a last fence without an end")
    # Without a fence, the explanation is what stands above the code.
    used = () if answer.fences else (range(programs.first_code_line(answer.lines), len(answer.lines)),)
    return _Found(_first_changed(blocks, reading), used=used)


def _complete(reading: _Reading) -> _Found | None:
    """The child of an answer that was cut off inside its code: what is cut may parse and still lack its end."""
    answer = reading.answer
    if not programs.codes(answer, []):
        return None
    whole = replace(answer, fences=tuple(fence for fence in answer.fences if fence.closed))
    if whole.fences:
        with suppress(AnswerError):
            return _Found(_first_changed(programs.codes(whole, []), reading))
    message = f"the answer was cut off inside its code, in line {len(answer.lines)}"
    raise AnswerError("truncated", message, "answer with less prose, a shorter file, or edits only")


def _first_changed(blocks: Sequence[str], reading: _Reading) -> str:
    """The child of the best block that parses; one that only quotes the parent gives way to the next."""
    hint = f"answer with {ASKED['full']}, with that line corrected"
    first: AnswerError | None = None
    for text in [block for block in blocks if programs.parses(block)] or blocks[:1]:
        try:
            return programs.finished(text, reading.parent, hint, reading.notes)
        except AnswerError as error:
            first = first or error
            if error.kind != "unchanged":
                break
    raise first or AnswerError("no_code", "the answer holds no code", _asked(reading.forms))


READERS: dict[Form, Callable[[_Reading], _Found | None]] = {"structured": _structured, "diff": _diff, "full": _full}


def _unix(source: str) -> str:
    return source.replace("\r\n", "\n")


def _asked(forms: Sequence[Form]) -> str:
    return f"answer with {' or with '.join(ASKED[form] for form in forms)}"


def _empty(answer: str, cleaned: Answer, forms: Sequence[Form]) -> AnswerError:
    if cleaned.cut:
        return AnswerError("truncated", "the answer was cut off before it began", f"think less, then {_asked(forms)}")
    what = "holds thoughts only" if answer.strip() else "is empty"
    return AnswerError("empty", f"the answer {what}", _asked(forms))


def _nothing(answer: Answer, forms: Sequence[Form]) -> AnswerError:
    if answer.cut:
        return AnswerError(
            "truncated", "the answer was cut off before any code", f"write less prose and {_asked(forms)}"
        )
    held: list[str] = []
    with suppress(AnswerError):
        held += ["edits"] if "diff" not in forms and find_hunks(answer, []) else []
    held += ["a whole file"] if "full" not in forms and programs.has_model(answer) else []
    held += [f"code in {language}" for language in programs.other_languages(answer)][:3]
    what = f"{' and '.join(held)}, which is not what was asked for" if held else "no code"
    return AnswerError("no_code", f"the answer holds {what}", _asked(forms))
