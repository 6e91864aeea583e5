"""Verdicts as they are exchanged."""

from __future__ import annotations

import pickle

from evaluator.types import EvalStatus, Evaluation, Timing


def test_a_copy_with_other_timings_has_another_speedup():
    timing = Timing(kind="measured", median_ms=1.0, baseline_ms=2.0)
    known = Evaluation(source_sha="s", task="t", evaluator="gpu", status=EvalStatus.PASSED, timings={"w": timing})
    assert known.speedup == 2.0
    slower = timing.model_copy(update={"median_ms": 4.0})
    for deep in (False, True):
        assert known.model_copy(update={"timings": {"w": slower}}, deep=deep).speedup == 0.5


def test_whether_a_speedup_was_asked_for_changes_neither_equality_nor_json():
    timing = Timing(kind="measured", median_ms=1.0, baseline_ms=2.0)
    asked, quiet = (
        Evaluation(source_sha="s", task="t", evaluator="gpu", status=EvalStatus.PASSED, timings={"w": timing})
        for _ in range(2)
    )
    assert asked.speedup == 2.0
    assert asked == quiet
    assert asked.model_dump_json() == quiet.model_dump_json()
    assert pickle.loads(pickle.dumps(asked)) == quiet
