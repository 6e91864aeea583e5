"""What is wrong with a config, in the user's words: position, key, what, and how to mend it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from evaluator.errors import UsageError
from evaluator.yaml_reader import Document, Loc
from evo.config_keys import all_keys, dotted, keys_at, nearest, nearest_key

_SHOWN = 20


class Problem(NamedTuple):
    """One thing to mend."""

    position: str
    key: str
    what: str
    fix: str

    def __str__(self) -> str:
        known = self.position == f"--set {self.key}"
        return ": ".join(part for part in (self.position, "" if known else self.key, self.what) if part)


def usage_error(problems: Sequence[Problem]) -> UsageError:
    """One error that lists every problem in the order of the file."""
    if len(problems) == 1:
        return UsageError(str(problems[0]), problems[0].fix)
    ordered = sorted(problems, key=lambda problem: _sort_key(problem.position))
    lines = [f"{problem} — {problem.fix}" for problem in ordered[:_SHOWN]]
    if len(ordered) > _SHOWN:
        lines.append(f"… and {len(ordered) - _SHOWN} more")
    return UsageError("\n".join(lines), f"mend these {len(ordered)} places; docs/config.md describes every key")


def _sort_key(position: str) -> tuple[str, int, int]:
    found = re.fullmatch(r"(.*):(\d+):(\d+)", position)
    return (found[1], int(found[2]), int(found[3])) if found else (position, 0, 0)


def from_validation(error: ValidationError, document: Document) -> list[Problem]:
    """The problems pydantic found, with positions in the document."""
    return [_problem(details, document) for details in error.errors(include_url=False)]


def _problem(details: ErrorDetails, document: Document) -> Problem:
    loc = _in_document(details["loc"], document.data)
    kind = details["type"]
    context: Mapping[str, Any] = details.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(loc, document)
    if kind == "missing":
        where = document.value_position(loc[:-1])
        return Problem(where, dotted(loc), "this key is missing", f"add `{loc[-1]}:` ({_meaning(loc)})")
    if kind == "union_tag_invalid":
        return _wrong_type(loc, document, context)
    where = document.value_position(loc)
    if kind == "literal_error":
        fix = _choices(str(details["input"]), str(context["expected"]))
        return Problem(where, dotted(loc), f"unknown choice {_found(details['input'])}", fix)
    what, fix = _WORDS.get(kind, (_lower_first(details["msg"]), ""))
    found = details["input"]
    text = f"{what.format(**context)}, not {_found(found)}"
    if kind == "int_type" and isinstance(found, float) and found.is_integer():
        fix = f"write `{found:.0f}`"
    if found is None:
        fix = ""
    return Problem(where, dotted(loc), text, fix or _about(loc, kind))


def _unknown_key(loc: Loc, document: Document) -> Problem:
    near = nearest_key(loc, document.data)
    known = ", ".join(keys_at(loc[:-1], document.data))
    fix = f"the nearest valid key is `{near}`" if near else f"valid keys here: {known}"
    return Problem(document.key_position(loc), dotted(loc), "unknown key", fix)


def _wrong_type(loc: Loc, document: Document, context: Mapping[str, Any]) -> Problem:
    section = (*loc, "type")
    tag = str(context["tag"])
    fix = _choices(tag, str(context["expected_tags"]))
    return Problem(document.value_position(section), dotted(section), f"unknown type {tag!r}", fix)


def _in_document(loc: Sequence[str | int], data: Any) -> Loc:
    """Pydantic's path without the names of union members, which are not keys of the file."""
    kept: list[str | int] = []
    for index, part in enumerate(loc):
        last = index == len(loc) - 1
        if isinstance(data, dict) and part in data:
            data = data[str(part)]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        elif not (last and isinstance(data, dict)):
            continue
        kept.append(part)
    return tuple(kept)


def _found(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, dict | list):
        return "a section of keys" if isinstance(value, dict) else "a list"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _meaning(loc: Loc) -> str:
    path = dotted(part for part in loc if isinstance(part, str))
    found = next((key.field.description for key in all_keys() if key.path == path), None)
    return " ".join((found or "see docs/config.md").split())


def _about(loc: Loc, kind: str) -> str:
    if kind == "model_type":
        return f"indent its keys below it: {', '.join(keys_at(loc, {}))}"
    return f"{dotted(loc)} is: {_meaning(loc)}" if loc else "docs/config.md describes every key"


def _choices(found: str, expected: str) -> str:
    choices = expected.replace("'", "").replace(" or ", ", ").split(", ")
    near = nearest(found, choices) if len(choices) > 1 else None
    return f"{f'did you mean `{near}`? ' if near else ''}one of: {', '.join(choices)}"


def _lower_first(message: str) -> str:
    return message[:1].lower() + message[1:]


_WORDS: Mapping[str, tuple[str, str]] = {
    "int_type": ("a whole number is needed", "write it without quotes, point or exponent, e.g. `100`"),
    "float_type": ("a number is needed", "write it without quotes, e.g. `0.5`"),
    "bool_type": ("true or false is needed", "write `true` or `false`; on, off, yes and no are plain text"),
    "string_type": ("text is needed", "put it in quotes"),
    "tuple_type": ("a list is needed", "write it as `[first, second]`"),
    "model_type": ("a section of keys is needed", ""),
    "greater_than": ("must be greater than {gt}", ""),
    "greater_than_equal": ("must be at least {ge}", ""),
    "less_than": ("must be less than {lt}", ""),
    "less_than_equal": ("must be at most {le}", ""),
}
"""Pydantic's error type -> what is wrong (its context filled in), and the fix where it is always the same."""
