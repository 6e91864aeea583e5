"""Structured answers: JSON that names rewrites of the catalogue."""

from __future__ import annotations

import json
import re
from bisect import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

from policy.answers.errors import AnswerError
from policy.answers.loose_json import LooseError, read_json
from policy.answers.text import Answer
from policy.rewrites.base import Rewrite, RewriteContext, RewriteError
from policy.rewrites.catalogue import apply_steps, catalogue, rewrite_named
from policy.types import RewriteStep

MAX_STEPS = 16
"""Steps that are applied at most: each takes milliseconds."""
MAX_JSON = 1 << 14
"""Characters of one JSON value that are read."""
MAX_TRIES = 32
"""JSON values of one answer that are read."""
SETTINGS_SHOWN = 4
SHAPE = '{"steps": [{"name": <rewrite>, "args": {…}}]}'

# The start of an answer's steps: an object or a list of objects whose first key says so.
_START = re.compile(r"""(?:\[\s*+)?\{\s*+["'\u201c\u2018]?(?:steps|name|rewrite)["'\u201d\u2019]?\s*+[:=]""")
_NAMES = ("name", "rewrite")
_ARGS = ("args", "arguments", "parameters")


@dataclass(frozen=True)
class Payload:
    """The JSON of a structured answer."""

    value: Any
    lines: range
    """Lines of the answer that hold it."""
    notes: tuple[str, ...]


def find_payload(answer: Answer, *, only: bool) -> Payload | None:
    """The last JSON value that holds steps; None where there is none. Code in fences is passed over.

    `only` says that no other form is allowed, so that any other JSON is an error. Raises AnswerError.
    """
    text = answer.text
    found: Payload | None = None
    wrong: AnswerError | None = None
    end = tries = 0
    for start in _starts(answer, text):
        if start < end:
            continue
        if tries == MAX_TRIES:
            break
        tries += 1
        try:
            found, end = _payload(answer, text, start)
        except AnswerError as error:
            wrong = wrong or error
    if wrong and (found is None or wrong.kind == "truncated"):
        raise wrong
    if found is None and (only or text.lstrip().startswith("{")) and re.search(r"[{\[]", text):
        raise AnswerError("bad_json", "the answer holds no JSON object with steps", _fix())
    return found


def _starts(answer: Answer, text: str) -> Iterator[int]:
    """Offsets where steps may begin, those inside of whole files left out."""
    offsets = [0, *accumulate(len(line) + 1 for line in answer.lines)]
    files = [
        (offsets[fence.first], offsets[fence.last])
        for fence in answer.fences
        if not fence.text.lstrip().startswith(("{", "[")) and "ModelNew" in fence.text
    ]
    for match in _START.finditer(text):
        before = bisect(files, (match.start(), len(text)))
        if not before or files[before - 1][1] <= match.start():
            yield match.start()


def _payload(answer: Answer, text: str, start: int) -> tuple[Payload, int]:
    notes: list[str] = []
    window = text[start : start + MAX_JSON]
    try:
        value, length, closed = read_json(window, 0, notes)
    except LooseError as error:
        if answer.cut and error.ended:
            raise _truncated() from None
        line, column = _position(text, start + error.place)
        raise AnswerError(
            "bad_json", f"line {line}, column {column} of the answer is no JSON: {error}", _fix()
        ) from None
    if not closed and answer.cut:
        raise _truncated()
    first, last = text.count("\n", 0, start), text.count("\n", 0, start + length)
    return Payload(value, range(first, last + 1), tuple(notes)), start + length


def _position(text: str, place: int) -> tuple[int, int]:
    return text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)


def _truncated() -> AnswerError:
    return AnswerError(
        "truncated", "the answer was cut off inside its JSON", f"answer shorter: {SHAPE} and nothing else"
    )


def _fix() -> str:
    return f"answer with one JSON object and nothing else: {SHAPE}"


def steps_of(value: Any, notes: list[str]) -> tuple[RewriteStep, ...]:
    """Typed steps from a JSON value. Raises AnswerError."""
    if isinstance(value, dict) and "steps" in value:
        value = value["steps"]
    elif isinstance(value, list):
        notes.append("a list of steps without their object")
    if isinstance(value, dict):
        notes.append("a step without its list")
        value = [value]
    if not isinstance(value, list) or not value:
        raise AnswerError("bad_json", "the answer's JSON lists no step", _fix())
    if len(value) > MAX_STEPS:
        raise AnswerError("bad_json", f"the answer lists {len(value)} steps, more than {MAX_STEPS}", "name fewer steps")
    return tuple(_step(number, step, notes) for number, step in enumerate(value, start=1))


def _step(number: int, step: Any, notes: list[str]) -> RewriteStep:
    name = next((step[key] for key in _NAMES if key in step), None) if isinstance(step, dict) else None
    if not isinstance(name, str):
        raise AnswerError("bad_json", f"step {number} names no rewrite", _fix())
    rewrite = _named(number, name, notes)
    args = next((step[key] for key in _ARGS if key in step), None)
    if args is None:
        args = {key: given for key, given in step.items() if key not in (*_NAMES, *_ARGS)}
        notes += ["arguments beside the name"] if args else []
    if isinstance(args, str):
        args = _inner(args, notes)
    if not isinstance(args, Mapping):
        raise _bad_arguments(number, rewrite, "args is no object")
    typed = {str(key): _typed(rewrite.name, str(key), given, notes) for key, given in args.items()}
    try:
        settled = rewrite.parse_args(typed)
    except RewriteError as error:
        raise _bad_arguments(number, rewrite, str(error)) from None
    return RewriteStep(name=rewrite.name, args=settled.model_dump(mode="json"))


def _inner(text: str, notes: list[str]) -> Any:
    """Arguments that were written as JSON inside of a text, as tool calls do."""
    try:
        value, _, _ = read_json(text.strip()[:MAX_JSON], 0, notes)
    except LooseError:
        return None
    notes.append("arguments as text")
    return value


def _named(number: int, name: str, notes: list[str]) -> Rewrite[Any]:
    known = catalogue()
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s-]", "_", name.strip()[:80]).lower()
    if plain in known:
        notes += ["another spelling of a rewrite's name"] if plain != name else []
        return known[plain]
    try:
        return rewrite_named(name[:80])
    except RewriteError as error:
        fix = "name rewrites of the list in the prompt only"
        raise AnswerError("unknown_rewrite", f"step {number}: {error}", fix) from None


def _typed(rewrite: str, key: str, given: Any, notes: list[str]) -> Any:
    """Numbers and truth values that were written as text, where the schema wants them so."""
    wanted = _types(rewrite).get(key)
    typed = given
    if wanted == "integer" and isinstance(given, str) and re.fullmatch(r"[+-]?\d{1,18}(?:\.0*)?", given.strip()):
        typed = int(float(given)) if "." in given else int(given)
    elif wanted == "integer" and isinstance(given, float) and given.is_integer():
        typed = int(given)
    elif wanted == "boolean" and isinstance(given, str) and given.strip().lower() in ("true", "false"):
        typed = given.strip().lower() == "true"
    if typed is not given:
        notes.append("values of another type")
    return typed


@lru_cache(maxsize=256)
def _types(rewrite: str) -> dict[str, str]:
    """JSON type by argument."""
    properties = rewrite_named(rewrite).Args.model_json_schema().get("properties", {})
    return {name: str(schema.get("type", "")) for name, schema in properties.items()}


def _bad_arguments(number: int, rewrite: Rewrite[Any], why: str) -> AnswerError:
    properties = rewrite.Args.model_json_schema().get("properties", {})
    shown = ", ".join(f"{name}: {_said(schema)}" for name, schema in properties.items())
    return AnswerError("bad_json", f"step {number} ({rewrite.name}): {why}", f"{rewrite.name} takes {{{shown}}}")


def _said(schema: Mapping[str, Any]) -> str:
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    return " | ".join(json.dumps(value) for value in values) or str(schema.get("type", "a value"))


def apply_all(parent: str, steps: tuple[RewriteStep, ...], context: RewriteContext) -> str:
    """The child that `apply_steps` makes. Raises AnswerError with settings that do apply."""
    source = parent
    for number, step in enumerate(steps, start=1):
        try:
            source = apply_steps(source, (step,), context)
        except RewriteError as error:
            why = str(error).removeprefix(f"step 1 ({step.name}): ")
            message = f"step {number} ({step.name}): {why}"
            raise AnswerError("does_not_apply", message, _settings(source, step.name, context)) from None
    return source


def _settings(source: str, name: str, context: RewriteContext) -> str:
    try:
        found = rewrite_named(name).candidates(source, context)
    except RewriteError:
        found = []
    if not found:
        return f"no setting of {name} applies at that step: choose another rewrite"
    shown = "  ".join(json.dumps(args.model_dump(mode="json")) for args in found[:SETTINGS_SHOWN])
    return f"settings of {name} that apply at that step: {shown}"
