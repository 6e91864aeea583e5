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


NESTED = """
def outer(x):
    '''Doc.'''
    if x:
        y = 1
    else:
        for z in x:
            with z:
                y = 2
    try:
        match x:
            case 1:
                y = 3
    except ValueError:
        y = 4
    finally:
        class Inner:
            def method(self):
                self.y = 5
    return lambda: x


async def other():
    while True:
        y = 6
"""


def test_statements_are_those_that_walk_finds_in_its_order():
    tree = syntax.parse(NESTED)
    assert [node for node in syntax.statements(tree) if isinstance(node, ast.stmt)] == [
        node for node in ast.walk(tree) if isinstance(node, ast.stmt)
    ]


def test_own_statements_stop_at_functions_and_classes():
    outer = syntax.parse(NESTED).body[0]
    own = [ast.unparse(node) for node in syntax.statements(outer, own=True) if isinstance(node, ast.Assign)]
    assert sorted(own) == ["y = 1", "y = 2", "y = 3", "y = 4"]
