from __future__ import annotations

import pytest

from policy.finite_schema import MOST, EndlessSchemaError, values
from policy.rewrites.catalogue import json_schema, one_step_schema, rewrite_named


def whole(**properties):
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def test_the_schema_of_one_step_lists_every_answer():
    schema = one_step_schema({"use_rsqrt": [rewrite_named("use_rsqrt").parse_args({"kernel": "k", "site": 0})]})
    assert values(schema) == [{"steps": [{"name": "use_rsqrt", "args": {"kernel": "k", "site": 0}}]}]


def test_parts_are_combined():
    schema = whole(a={"type": "boolean"}, b={"oneOf": [{"const": 1}, {"type": "null"}]})
    assert values(schema) == [{"a": a, "b": b} for a in (True, False) for b in (1, None)]
    array = {"type": "array", "items": {"enum": ["x", "y"]}, "minItems": 1, "maxItems": 2}
    assert values(array) == [["x"], ["y"], ["x", "x"], ["x", "y"], ["y", "x"], ["y", "y"]]


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"type": "string"}, r"leaves \$ open"),
        (whole(a={"type": "integer"}), r"leaves \$.a open"),
        ({"type": "object", "properties": {"a": {"const": 1}}}, r"leaves \$ open"),
        ({"type": "array", "items": {"const": 1}}, r"leaves \$ open"),
        (json_schema(max_steps=2), "open"),
        ({"type": "array", "items": {"enum": list(range(200))}, "minItems": 2, "maxItems": 2}, f"more than {MOST}"),
    ],
)
def test_what_cannot_be_listed_is_refused_with_its_place(schema, where):
    with pytest.raises(EndlessSchemaError, match=where):
        values(schema)
