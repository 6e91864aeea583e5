"""YAML's traps are closed, and every value knows where it stands."""

from __future__ import annotations

from contextlib import suppress

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from evaluator.errors import UsageError
from evaluator.yaml_reader import parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1E5", 1e5),
        ("-2.5e+3", -2500.0),
        (".5", 0.5),
        ("3.", 3.0),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("No", "No"),
        ("true", True),
        ("False", False),
        ("010", 10),
        ("+7", 7),
        ("-08", -8),
        ("1:30", "1:30"),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"),
        ("~", None),
        ("", None),
        ("null", None),
        ("'1e-5'", "1e-5"),
        ("e5", "e5"),
        ("1e", "1e"),
        (".", "."),
        ("=", "="),
    ],
)
def test_a_scalar_means_what_it_looks_like(text, value):
    read = parse(f"key: {text}", "f").data["key"]
    assert read == value
    assert type(read) is type(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_written_by_python_is_read_back(number):
    assert parse(f"a: {number!r}", "f").data == {"a": number}


@given(st.integers(min_value=-(10**30), max_value=10**30))
def test_every_integer_is_decimal(number):
    assert parse(f"a: {number:05d}", "f").data == {"a": number}


_words = st.text("abcxyz", min_size=1, max_size=6)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(_words, _values, max_size=4))
def test_plain_data_survives_the_round_trip_and_every_value_has_a_position(data):
    document = parse(yaml.safe_dump(data), "f")
    assert document.data == data
    pending = [((), data)]
    while pending:
        loc, value = pending.pop()
        assert loc in document.values
        children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        pending += [((*loc, key), child) for key, child in children]


def test_positions_are_line_and_column_counted_from_one():
    document = parse("task: softmax\nsearch:\n  objectives: [speedup, registers]\n", "f")
    assert document.key_position(("search", "objectives")) == "f:3:3"
    assert document.value_position(("search", "objectives", 1)) == "f:3:25"
    assert document.value_position(("search", "missing")) == "f:3:3"


def test_a_merge_key_brings_defaults_that_the_mapping_overrides():
    document = parse("base: &b {x: 1, y: 2}\nmine:\n  <<: *b\n  y: 3\n", "f")
    assert document.data["mine"] == {"x": 1, "y": 3}
    assert document.value_position(("mine", "y")) == "f:4:6"
    assert document.value_position(("mine", "x")) == "f:1:14"


def test_a_merged_mapping_used_twice_is_no_duplicate():
    text = "base: &b {x: 1}\none: &o {<<: *b, x: 2}\ntwo: {<<: *o}\nthree: *o\n"
    assert parse(text, "f").data == {"base": {"x": 1}, "one": {"x": 2}, "two": {"x": 2}, "three": {"x": 2}}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a: 1\nb: {c: 1, c: 2}", "f:2:11: c: the key is given twice, first on line 2"),
        ("a: 1\nb: 2\na: 3", "f:3:1: a: the key is given twice, first on line 1"),
        ("a: [1, 2", "f:1:9: not YAML"),
        ("a:\n\tb: 1", "f:2:1: not YAML"),
        ("a: 1\nb: x\x07y", "f:2:5: not YAML: character U+0007"),
        ("a: *nowhere", "f:1:4: not YAML: found undefined alias"),
        ("a: 1\n---\nb: 2", "f:2:1: not YAML"),
        ("a: .inf", "f:1:4: .inf is not a finite number"),
        ("a: 1e999", "f:1:4: 1e999 is not a finite number"),
        ("a: !!python/object:os.system x", "f:1:4: not YAML"),
        ("a: !!binary aGk=", "f:1:4: YAML tag"),
        ("a: !!int x", "f:1:4: x is not a whole number"),
        ("a: {<<: 3}", "f:1:9: `<<` merges sections of keys only"),
        ("a: {<<: [{b: 1}, x]}", "f:1:18: `<<` merges sections of keys only"),
        ("? [a, b]\n: 1", "f:1:3: a key must be a plain word"),
        ('a: "\\ud800"', "f:1:4: the text holds half of a surrogate pair"),
        ("a: " + "9" * 5000, "f:1:4: 9999"),
        ("[" * 3000, "f:1:1: nested more than"),
    ],
)
def test_what_is_not_plain_yaml_is_an_error_with_its_position(text, where):
    with pytest.raises(UsageError) as raised:
        parse(text, "f")
    assert raised.value.message.startswith(where)
    assert raised.value.hint


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: &a {b: *a}", "a: &a {<<: *a}"])
def test_an_alias_that_contains_itself_is_an_error(text):
    with pytest.raises(UsageError, match="nested more than 50 levels"):
        parse(text, "f")


def test_an_alias_bomb_is_an_error_and_not_an_explosion():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    with pytest.raises(UsageError, match="more than 100000 values"):
        parse("\n".join(lines), "f")


def test_merging_the_same_mapping_again_and_again_stays_cheap():
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}" for i in range(1, 40)]
    assert parse("\n".join(lines), "f").data["a39"] == {"x": 1}


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_but_never_crashes(text):
    with suppress(UsageError):
        assert parse(text, "f").label == "f"
