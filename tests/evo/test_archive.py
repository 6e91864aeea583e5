"""The archive keeps the best of every kind, and luck does not evict."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.types import EvalStatus, Evaluation, Timing
from evo.archive import Archive, lower_bound
from evo.candidate import Candidate, Record


def record(name: str, speedup: float | None, low: float | None = None) -> Record:
    candidate = Candidate(
        id=name, generation=0, operator="seed", source_sha=name, ast_hash=name, structure=name, parent_ids=()
    )
    common = {"source_sha": name, "task": "t", "evaluator": "cpu"}
    if speedup is None:
        return Record(candidate=candidate, evaluation=Evaluation(status=EvalStatus.WRONG_VALUE, **common))
    timing = Timing(kind="measured", median_ms=1.0, baseline_ms=speedup, ratio_low=low)
    return Record(candidate=candidate, evaluation=Evaluation(status=EvalStatus.PASSED, timings={"w": timing}, **common))


def test_a_better_kernel_takes_the_cell_and_a_worse_one_does_not():
    archive = Archive()
    assert archive.add(("dram",), record("a", 1.5))
    assert not archive.add(("dram",), record("b", 1.4))
    assert archive.add(("dram",), record("c", 1.6))
    assert [owner.id for owner in archive.owners] == ["c"]


def test_a_lucky_sample_with_a_wide_interval_does_not_evict_the_owner():
    archive = Archive()
    archive.add(("dram",), record("steady", 1.5, low=1.49))
    assert not archive.add(("dram",), record("lucky", 1.7, low=1.45))
    assert archive.add(("dram",), record("sure", 1.7, low=1.65))


def test_a_failed_candidate_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="only passed candidates"):
        Archive().add(("dram",), record("bad", None))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.1, 10.0)), min_size=1, max_size=30))
def test_every_cell_holds_the_best_it_was_ever_offered(offers):
    archive = Archive()
    for number, (cell, speedup) in enumerate(offers):
        archive.add((cell,), record(str(number), speedup))
    for (cell,), owner in archive:
        assert owner.speedup == pytest.approx(max(speedup for name, speedup in offers if name == cell))
    best = {cell: max(speedup for name, speedup in offers if name == cell) for cell, _ in offers}
    assert archive.qd_score == pytest.approx(sum(max(0.0, math.log(speedup)) for speedup in best.values()))


def test_every_cell_is_equally_likely_whatever_its_speed():
    archive = Archive()
    for number, speedup in enumerate((1.0, 5.0, 0.2)):
        archive.add((str(number),), record(str(number), speedup))
    rng = np.random.default_rng(0)
    counts = [0, 0, 0]
    for _ in range(3000):
        counts[int(archive.sample(rng).id)] += 1
    assert min(counts) > 850


def test_the_lower_bound_of_a_modelled_timing_is_its_speedup():
    assert lower_bound(record("a", 1.5)) == pytest.approx(1.5)
    assert lower_bound(record("a", 1.5, low=1.2)) == pytest.approx(1.2)
