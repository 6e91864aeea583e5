"""Every value that a JSON schema allows, where they can be listed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

MOST = 20_000
"""More values than this are not listed."""


class EndlessSchemaError(ValueError):
    """A schema that allows more values than can be listed, or uses what is not known here; the text says where."""


def values(schema: Mapping[str, Any]) -> list[Any]:
    """The values in the schema's own order, keys of objects in the order of `properties`.

    Understood are enum, const, booleans, null, oneOf and anyOf, objects whose properties are all required and which
    have no others, and arrays of at most `maxItems`. Raises EndlessSchemaError for anything else.
    """
    found = list(itertools.islice(_values(schema, "$"), MOST + 1))
    if len(found) > MOST:
        raise EndlessSchemaError(f"the schema allows more than {MOST} answers")
    return found


def _values(schema: Mapping[str, Any], where: str) -> Iterator[Any]:
    if "enum" in schema:
        yield from schema["enum"]
    elif "const" in schema:
        yield schema["const"]
    elif "oneOf" in schema or "anyOf" in schema:
        for index, branch in enumerate(schema.get("oneOf", schema.get("anyOf", ()))):
            yield from _values(branch, f"{where}[{index}]")
    elif schema.get("type") == "boolean":
        yield from (True, False)
    elif schema.get("type") == "null":
        yield None
    elif schema.get("type") == "object":
        yield from _objects(schema, where)
    elif schema.get("type") == "array":
        yield from _arrays(schema, where)
    else:
        raise EndlessSchemaError(f"the schema leaves {where} open")


def _objects(schema: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    if schema.get("additionalProperties", True) is not False or set(schema.get("required", ())) != set(properties):
        raise EndlessSchemaError(f"the schema leaves {where} open")
    members = [_listed(inner, f"{where}.{name}") for name, inner in properties.items()]
    for chosen in itertools.product(*members):
        yield dict(zip(properties, chosen, strict=True))


def _arrays(schema: Mapping[str, Any], where: str) -> Iterator[list[Any]]:
    if "maxItems" not in schema or "items" not in schema:
        raise EndlessSchemaError(f"the schema leaves {where} open")
    items = _listed(schema["items"], f"{where}[]")
    for length in range(int(schema.get("minItems", 0)), int(schema["maxItems"]) + 1):
        for chosen in itertools.product(items, repeat=length):
            yield list(chosen)


def _listed(schema: Mapping[str, Any], where: str) -> list[Any]:
    """The values of a part, no more than can be listed: `itertools.product` keeps them all."""
    return list(itertools.islice(_values(schema, where), MOST + 1))
