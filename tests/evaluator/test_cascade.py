from __future__ import annotations

import threading

from evaluator.cascade import Facts, Verdict, at_once, walk
from evaluator.types import EvalStatus, KernelSource


def facts():
    return Facts(KernelSource(text=""))


def test_a_candidate_that_no_stage_objects_to_passes():
    verdict, records = walk([("one", lambda _: None), ("two", lambda _: None)], facts())
    assert verdict.status is EvalStatus.PASSED
    assert [(record.name, record.status) for record in records] == [
        ("one", EvalStatus.PASSED),
        ("two", EvalStatus.PASSED),
    ]


def test_the_first_objection_ends_the_walk():
    reached = []
    stages = [
        ("one", lambda _: Verdict(EvalStatus.WRONG_VALUE, "no")),
        ("two", lambda _: reached.append(1)),
    ]
    verdict, records = walk(stages, facts())
    assert verdict.status is EvalStatus.WRONG_VALUE
    assert reached == []
    assert [record.detail for record in records] == ["no"]


def test_a_stage_that_raises_fails_closed_and_names_itself():
    def broken(_):
        raise ZeroDivisionError("oh")

    verdict, records = walk([("profile", broken)], facts())
    assert verdict.status is EvalStatus.HARNESS_ERROR
    assert "profile" in verdict.reason
    assert "ZeroDivisionError" in verdict.reason
    assert records[0].status is EvalStatus.HARNESS_ERROR


def test_later_stages_see_what_earlier_ones_learnt():
    def first(known):
        known.notes.append("learnt")

    def second(known):
        return None if known.notes == ["learnt"] else Verdict(EvalStatus.HARNESS_ERROR, "lost")

    verdict, _ = walk([("first", first), ("second", second)], facts())
    assert verdict.status.passed
    assert verdict.explain == "learnt"


def test_stages_at_once_run_side_by_side_and_speak_in_turn():
    together = threading.Barrier(2, timeout=30)
    entered = []

    def first(known):
        together.wait()
        known.notes.append("first")

    def second(known):
        together.wait()
        known.notes.append("second")
        return Verdict(EvalStatus.WRONG_VALUE, "no")

    known = facts()
    stages = at_once([("first", first), ("second", second)], lambda: entered.append(1))
    verdict, records = walk([*stages, ("third", lambda _: None)], known)
    assert verdict.reason == "no"
    assert [record.name for record in records] == ["first", "second"]
    assert known.notes == ["first", "second"]
    assert len(entered) == 2


def test_the_first_objection_of_stages_at_once_is_the_one_that_counts():
    stages = at_once(
        [
            ("first", lambda _: Verdict(EvalStatus.COMPILE_ERROR, "not even compiled")),
            ("second", lambda _: Verdict(EvalStatus.WRONG_VALUE, "wrong as well")),
        ],
        lambda: None,
    )
    verdict, _ = walk(stages, facts())
    assert verdict.status is EvalStatus.COMPILE_ERROR


def test_a_stage_that_raises_beside_others_fails_closed_in_its_turn():
    def broken(_):
        raise ZeroDivisionError("oh")

    verdict, records = walk(at_once([("first", lambda _: None), ("second", broken)], lambda: None), facts())
    assert verdict.status is EvalStatus.HARNESS_ERROR
    assert [record.name for record in records] == ["first", "second"]
