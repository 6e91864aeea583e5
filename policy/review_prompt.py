"""The reviewer's prompt: the kinds of cheating, the reference and the candidate as data, and the prompt's version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import astuple
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from evaluator.types import KernelSource, Task
from policy.hack_kinds import HACK_KINDS
from policy.prompting.text import fenced, inline
from policy.tool_chat import ChatMessage

OPERATORS = {
    "strict": "not allowed",
    "mixed": "allowed beside Triton kernels that do a real part of the work",
    "free": "allowed",
}

_TEMPLATES = ("review_system.md.j2", "review_user.md.j2")


def review_messages(source: KernelSource, task: Task) -> list[ChatMessage]:
    """System and user message. The system message is the same for all; the candidate is in one fence of the other."""
    values: Mapping[str, object] = {"kinds": HACK_KINDS, "operators": OPERATORS, "task": task, "source": source.text}
    system, user = (_environment().get_template(name).render(values).strip() for name in _TEMPLATES)
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("policy.prompting"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(fenced=fenced, inline=inline)
    return environment


def prompt_version(schema: Mapping[str, Any]) -> str:
    """Twelve hex digits that change with the templates, the kinds, the operators' words or the answer's schema."""
    loader = _environment().loader
    assert loader is not None
    parts = [loader.get_source(_environment(), name)[0] for name in _TEMPLATES]
    kinds = {kind: astuple(hack) for kind, hack in HACK_KINDS.items()}
    payload = json.dumps([*parts, kinds, OPERATORS, schema], sort_keys=True)
    return hashlib.sha256(payload.encode()).hexdigest()[:12]
