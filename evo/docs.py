"""docs/config.md, written from the config models: `python -m evo.docs` writes it, a test keeps it current."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from evo.config import CampaignConfig
from evo.config_keys import sections, type_name

PAGE = Path(__file__).parent.parent / "docs" / "config.md"

_INTRODUCTION = """# The config file

A campaign is described by one YAML file; `configs/quickstart.yaml` is a commented example. `kernevo run CONFIG`
reads it, `--set a.b=value` changes single keys, `kernevo run CONFIG --dry-run` checks it without running, and
`kernevo schema` prints its JSON schema for editors. This page is written from the models by `python -m evo.docs`.

Unknown keys, keys given twice and values of another type are errors that name file:line:column and the nearest
valid key. `1e-5` is a number; only `true` and `false` are truth values; `010` is ten; `1:30` is text.

Bold keys are required.
"""


def config_page() -> str:
    """The whole page: one table for each section, one row for each key."""
    schema = CampaignConfig.model_json_schema()
    parts = [_INTRODUCTION, *_section_parts(CampaignConfig, "", schema)]
    return "\n".join(parts)


def _section_parts(section: type[BaseModel], path: str, schema: Mapping[str, Any]) -> list[str]:
    selected = type_name(section) if _is_member_of_union(section) else None
    heading = f"## {path or 'Top level'}" + (f" (`type: {selected}`)" if selected else "")
    definition = schema if path == "" else schema["$defs"][section.__name__]
    rows = [_row(name, definition["properties"][name], section) for name in section.model_fields]
    about = inspect.cleandoc(section.__doc__ or "")
    table = ["| key | value | default | meaning |", "|---|---|---|---|", *rows, ""]
    parts = [heading, "", about, "", *table]
    for name, field in section.model_fields.items():
        for inner in sections(field.annotation):
            parts += _section_parts(inner, f"{path}.{name}" if path else name, schema)
    return parts


def _is_member_of_union(section: type[BaseModel]) -> bool:
    field = section.model_fields.get("type")
    return field is not None and len(get_args(field.annotation)) == 1


def _row(name: str, prop: Mapping[str, Any], section: type[BaseModel]) -> str:
    field = section.model_fields[name]
    key = f"**`{name}`**" if field.is_required() else f"`{name}`"
    holds_section = bool(sections(field.annotation))
    default = "" if field.is_required() or holds_section else f"`{json.dumps(prop.get('default'))}`"
    if default == "`null`":
        default = "left out"
    value = "section" if holds_section else _value(prop)
    return f"| {key} | {value} | {default} | {' '.join((field.description or '').split())} |"


def _value(prop: Mapping[str, Any]) -> str:
    """A JSON-schema property in words."""
    if options := prop.get("anyOf", prop.get("oneOf")):
        return " or ".join(_value(option) for option in options if option.get("type") != "null")
    if "const" in prop or "enum" in prop:
        return ", ".join(f"`{choice}`" for choice in prop.get("enum", [prop.get("const")]))
    if prop["type"] == "array":
        return f"list of {_value(prop['items'])}"
    word = _TYPES[prop["type"]]
    limits = [
        f"{sign} {prop[limit]}"
        for limit, sign in (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))
        if limit in prop
    ]
    return " ".join([word, *[", ".join(limits)] * bool(limits)])


_TYPES = {
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "string": "text",
    "object": "keys and values",
}


if __name__ == "__main__":
    PAGE.write_text(config_page(), encoding="utf-8")
