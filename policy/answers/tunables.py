"""Answers that choose values for the parent's tunables: JSON that names them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evaluator.errors import UsageError
from evaluator.tunables import Tunable, apply, extract
from policy.answers import programs
from policy.answers.errors import AnswerError
from policy.answers.loose_json import LooseError, read_json
from policy.answers.steps import MAX_JSON, MAX_TRIES
from policy.answers.text import Answer, clean, prose

SHAPE = '{"tunables": {"<name>": 128}}'
_FIX = f"answer with one JSON object and nothing else: {SHAPE}"
_START = re.compile(r"""\btunables["'\u201d\u2019]?\s*+[:=]\s*+(?=\{)""")
_WHOLE = re.compile(r"[+-]?\d{1,18}(?:\.0*)?")


@dataclass(frozen=True)
class Tuning:
    """The parent with other values for its tunables."""

    source: str
    config: Mapping[str, int]
    """The values that the answer changes."""
    explanation: str
    tolerated: tuple[str, ...]


def read_tuning(answer: str, parent: str, *, finish_reason: str = "stop") -> Tuning:
    """The child that `answer` makes of `parent`. Raises AnswerError, and nothing else whatever the answer holds."""
    notes: list[str] = []
    cleaned = clean(answer, parent, finish_reason == "length", notes)
    if not cleaned.text.strip():
        raise AnswerError("empty", "the answer is empty", _FIX)
    value, lines = _payload(cleaned, notes)
    space = {tunable.name: tunable for tunable in extract(parent).tunables}
    config = _config(value, space, notes)
    try:
        source = apply(parent, config)
    except UsageError as error:
        raise AnswerError("bad_value", error.message, error.hint or _FIX) from None
    programs.check_kept(source, parent)
    programs.check_changed(source, parent)
    return Tuning(source, config, prose(cleaned, [lines]), tuple(dict.fromkeys(notes)))


def _payload(answer: Answer, notes: list[str]) -> tuple[Any, range]:
    """The last object that stands behind `tunables`, and its lines in the answer."""
    text = answer.text
    found: tuple[Any, range] | None = None
    ended = False
    for tried, start in enumerate(match.end() for match in _START.finditer(text)):
        if tried == MAX_TRIES:
            break
        try:
            value, length, closed = read_json(text[start : start + MAX_JSON], 0, notes)
        except LooseError as error:
            ended = error.ended
            continue
        ended = not closed
        # The braces around it may stand on lines of their own.
        first, last = text.count("\n", 0, start), text.count("\n", 0, start + length)
        found = value, range(first, last + 1)
    if answer.cut and (ended or found is None):
        raise AnswerError("truncated", "the answer was cut off before its JSON ended", f"answer shorter: {SHAPE}")
    if found is None:
        raise AnswerError("bad_json", "the answer holds no JSON object with tunables", _FIX)
    return found


def _config(value: Any, space: Mapping[str, Tunable], notes: list[str]) -> dict[str, int]:
    if not isinstance(value, Mapping) or not value:
        raise AnswerError("bad_json", "`tunables` names no tunable", _FIX)
    config: dict[str, int] = {}
    for said, given in value.items():
        name = _named(str(said), space, notes)
        number = _number(given, notes)
        if number is None:
            shown = json.dumps(given, default=str)[:80]
            values = ", ".join(str(choice) for choice in space[name].choices)
            raise AnswerError("bad_value", f"{name}: {shown} is no whole number", f"give it one of {values}")
        if number != space[name].default:
            config[name] = number
    return config


def _named(said: str, space: Mapping[str, Tunable], notes: list[str]) -> str:
    """A name of the space; `num_warps` alone will do where one kernel has it."""
    if said in space:
        return said
    alike = [name for name in space if name.rpartition(".")[2].lower() == said.strip().rpartition(".")[2].lower()]
    if len(alike) == 1 and "." not in said:
        notes.append("a tunable without its kernel")
        return alike[0]
    known = f"name some of: {', '.join(space)}"
    raise AnswerError("unknown_tunable", f"there is no tunable named {said[:80]!r}", known)


def _number(given: Any, notes: list[str]) -> int | None:
    if isinstance(given, bool):
        return None
    if isinstance(given, str) and _WHOLE.fullmatch(given.strip()):
        notes.append("values of another type")
        return int(float(given)) if "." in given else int(given)
    if isinstance(given, float) and given.is_integer():
        notes.append("values of another type")
        return int(given)
    return given if isinstance(given, int) else None


def tunables_schema(parent: str) -> dict[str, Any]:
    """JSON schema of an answer: every tunable of `parent` with one of the values worth trying."""
    tunables = extract(parent).tunables
    return {
        "type": "object",
        "properties": {
            "tunables": {
                "type": "object",
                "properties": {tunable.name: {"enum": list(tunable.choices)} for tunable in tunables},
                "required": [tunable.name for tunable in tunables],
                "additionalProperties": False,
            }
        },
        "required": ["tunables"],
        "additionalProperties": False,
    }
