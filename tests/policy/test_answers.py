"""Recorded answers in the manner of many models: each is read as its first line says."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

from evaluator.source_hash import ast_hash
from evaluator.task import load_task
from policy.edits import AnswerError, AnswerKind, Form, read_answer
from policy.rewrites import RewriteContext, apply_steps

FOLDER = Path(__file__).parent / "answers"
ANSWERS = sorted(FOLDER.glob("*.txt"))


def recorded(path: Path) -> tuple[dict[str, str], str]:
    """The fields of the first line (`# parent: … | expect: …`, and maybe finish, forms, has, says) and the answer."""
    header, _, answer = path.read_bytes().decode("utf-8").partition("\n")
    fields = re.split(r" \| (?=[a-z]+: )", header.removeprefix("# "))
    return dict(field.split(": ", 1) for field in fields), answer


@pytest.mark.parametrize("path", ANSWERS, ids=lambda path: path.stem)
def test_a_recorded_answer_is_read_as_it_says(path):
    fields, answer = recorded(path)
    task = load_task(fields["parent"])
    context = RewriteContext.of_task(task)
    forms = tuple(fields["forms"].split(", ")) if "forms" in fields else get_args(Form)
    finish = fields.get("finish", "stop")
    if fields["expect"] in get_args(AnswerKind):
        with pytest.raises(AnswerError) as caught:
            read_answer(answer, task.seed_source, context, forms, finish_reason=finish)
        assert caught.value.kind == fields["expect"], str(caught.value)
        assert fields.get("says", "") in str(caught.value)
        return
    edit = read_answer(answer, task.seed_source, context, forms, finish_reason=finish)
    assert edit.form == fields["expect"]
    assert fields.get("has", "") in edit.source
    assert any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in ast.parse(edit.source).body)
    assert ast_hash(edit.source) != ast_hash(task.seed_source)
    assert bool(edit.rewrites) == (edit.form == "structured")
    if edit.form == "structured":
        assert edit.source == apply_steps(task.seed_source, edit.rewrites, context)


def test_the_corpus_covers_every_form_and_every_kind_of_error_but_kept_regions_and_tunables():
    elsewhere = {"outside_region", "unknown_tunable", "bad_value"}  # test_edits.py, test_tuning.py
    expected = {recorded(path)[0]["expect"] for path in ANSWERS}
    assert expected == {*get_args(Form), *get_args(AnswerKind)} - elsewhere
    assert len(ANSWERS) >= 70
