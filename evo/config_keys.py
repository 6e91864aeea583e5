"""Walks the config models: which keys exist where, which sections a key may hold, and the nearest valid key."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from evaluator.yaml_reader import Loc
from evo.config import CampaignConfig


class Key(NamedTuple):
    """One key of the config: its dotted path, the section type that holds it, and its field."""

    path: str
    section: type[BaseModel]
    field: FieldInfo


def sections(annotation: Any) -> list[type[BaseModel]]:
    """The section models an annotation admits: itself, or the members of a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for part in get_args(annotation) for section in sections(part)]


def type_name(section: type[BaseModel]) -> str | None:
    """The `type:` value that selects a section of a union; None for sections without one."""
    field = section.model_fields.get("type")
    return None if field is None else str(get_args(field.annotation)[0])


def all_keys(root: type[BaseModel] = CampaignConfig, prefix: str = "") -> Iterator[Key]:
    """Every key in the order of the models, sections before their keys."""
    for name, field in root.model_fields.items():
        path = f"{prefix}{name}"
        yield Key(path, root, field)
        for section in sections(field.annotation):
            yield from all_keys(section, f"{path}.")


def keys_at(loc: Loc, data: Any) -> list[str]:
    """Keys valid in the section at `loc`; where its `type:` selects among several, those of the selected one."""
    candidates: list[type[BaseModel]] = [CampaignConfig]
    for part in loc:
        if isinstance(part, int):  # an element of a list of sections
            data = data[part] if isinstance(data, list) and part < len(data) else None
            candidates = _selected(candidates, data)
            continue
        fields = [model.model_fields[str(part)] for model in candidates if str(part) in model.model_fields]
        if not fields:
            return []
        data = data.get(part) if isinstance(data, dict) else None
        candidates = [section for field in fields for section in sections(field.annotation)]
        candidates = _selected(candidates, data)
    return list(dict.fromkeys(name for model in candidates for name in model.model_fields))


def _selected(candidates: list[type[BaseModel]], data: Any) -> list[type[BaseModel]]:
    """Those of a union's sections that the data's `type:` selects; all where it selects none."""
    chosen = data.get("type") if isinstance(data, dict) else None
    return [model for model in candidates if type_name(model) == chosen] or candidates


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice most like `word`, or None when none is alike."""
    found = difflib.get_close_matches(word.lower().replace("-", "_"), list(choices), n=1, cutoff=0.55)
    return found[0] if found else None


def nearest_key(loc: Loc, data: Any) -> str | None:
    """Dotted path of the valid key nearest to the unknown one at `loc`: in its section, else anywhere."""
    parent, word = loc[:-1], str(loc[-1])
    here = nearest(word, keys_at(parent, data))
    if here is not None:
        return dotted((*parent, here))
    everywhere = {key.path.rpartition(".")[2]: key.path for key in all_keys() if not key.path.endswith(".type")}
    elsewhere = difflib.get_close_matches(word.lower(), list(everywhere), n=1, cutoff=0.8)
    return everywhere[elsewhere[0]] if elsewhere else None


def dotted(loc: Iterable[str | int]) -> str:
    """`search.objectives[1]` for ("search", "objectives", 1)."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
