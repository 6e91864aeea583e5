from __future__ import annotations

import ast

import pytest

from evaluator import syntax

DISTURBED = SystemError("AST constructor recursion depth mismatch (before=51, after=107)")


def disturbed(monkeypatch, times: int) -> list[str]:
    """`ast.parse` as it is while another thread parses too, for so many calls; returns a record of them."""
    real, calls = ast.parse, []

    def parse(source, mode="exec"):
        calls.append(mode)
        if len(calls) <= times:
            raise DISTURBED
        return real(source, mode=mode)

    monkeypatch.setattr(ast, "parse", parse)
    return calls


def test_a_parse_that_another_thread_disturbs_is_tried_again(monkeypatch):
    calls = disturbed(monkeypatch, 2)
    assert ast.dump(syntax.parse_expression("x + 1")) == ast.dump(syntax.parse_expression("x+1"))
    assert calls == ["eval"] * 4


def test_a_parse_that_never_works_says_so(monkeypatch):
    calls = disturbed(monkeypatch, 10**6)
    with pytest.raises(SystemError, match="mismatch"):
        syntax.parse("x")
    assert len(calls) == syntax.TRIES + 1


def test_wrong_source_is_refused_at_once(monkeypatch):
    calls = disturbed(monkeypatch, 0)
    with pytest.raises(SyntaxError):
        syntax.parse("def (:")
    assert calls == ["exec"]
