"""Hashes ignore what does not matter and notice what does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.source_hash import ast_hash, structure_hash
from evaluator.task import list_tasks, load_task
from evaluator.tunables import apply, extract


def test_comments_docstrings_quotes_and_spacing_do_not_count():
    one = 'def f(x):\n    """Doc."""\n    return x + "a"  # why\n'
    two = "def f( x ):\n\n    return (x + 'a')\n"
    assert ast_hash(one) == ast_hash(two)


def test_a_changed_number_counts():
    assert ast_hash("x = 1\n") != ast_hash("x = 2\n")


@given(data=st.data(), task=st.sampled_from(list_tasks()))
def test_configs_of_one_structure_share_its_hash_and_no_other(data, task):
    source = load_task(task).seed_source
    config = {tunable.name: data.draw(st.sampled_from(tunable.choices)) for tunable in extract(source).tunables}
    changed = apply(source, config)
    assert structure_hash(changed) == structure_hash(source)
    assert (ast_hash(changed) == ast_hash(source)) == (extract(source).defaults == config)


def test_every_shipped_seed_has_a_structure_of_its_own():
    hashes = {structure_hash(load_task(task).seed_source) for task in list_tasks()}
    assert len(hashes) == len(list_tasks())


def test_a_changed_statement_changes_the_structure():
    source = load_task("softmax").seed_source
    assert structure_hash(source.replace("tl.exp(", "tl.exp2(")) != structure_hash(source)


@pytest.mark.parametrize("source", ["x = (", "\0", "(" * 5000])
def test_a_source_that_does_not_parse_still_has_a_hash(source):
    assert len(ast_hash(source)) == 64
    assert structure_hash(source) == ast_hash(source)
