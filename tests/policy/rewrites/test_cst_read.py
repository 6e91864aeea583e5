from __future__ import annotations

import ast

import libcst as cst
import pytest

from policy.rewrites.cst_read import integer


@pytest.mark.parametrize(
    ("literal", "value"), [("0", 0), ("128", 128), ("-3", -3), ("0x1F", 31), ("1_024", 1024), ("0b11", 3), ("0o17", 15)]
)
def test_integer_literals_have_the_value_that_python_gives_them(literal, value):
    assert integer(cst.parse_expression(literal)) == value == ast.literal_eval(literal)


@pytest.mark.parametrize("other", ["1.0", "x", "1 + 1", "'1'", "True"])
def test_what_is_no_integer_literal_has_no_value(other):
    assert integer(cst.parse_expression(other)) is None


def test_reading_an_integer_disturbs_no_parse_of_another_thread(monkeypatch):
    literal = cst.parse_expression("128")
    monkeypatch.setattr(ast, "parse", lambda *args, **named: pytest.fail("parsed"))
    assert integer(literal) == 128
