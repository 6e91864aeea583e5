"""The front holds whoever is best at some trade, and nobody who is beaten at everything."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from evaluator.types import Timing
from evo.pareto import Front, costs, front
from evo.report.figures import pareto
from tests.evo.driver import campaign
from tests.evo.made import record


def took(number, ms, energy=None, error=None):
    made = record(number, 1.0)
    timing = Timing(kind="measured", median_ms=ms, baseline_ms=1.0, energy_mj=energy)
    facts = {"timings": {"w": timing}, "max_error": error}
    return made.model_copy(update={"evaluation": made.evaluation.model_copy(update=facts)})


def ids(records):
    return [one.number for one in records]


def test_the_front_is_the_fastest_the_thriftiest_and_what_lies_between():
    known = [took(1, 1.0, 9.0), took(2, 2.0, 5.0), took(3, 3.0, 1.0), took(4, 2.5, 6.0)]
    assert ids(front(known)) == [1, 2, 3]


def test_a_failed_candidate_is_never_on_the_front():
    assert front([record(1, None)]) == []


def test_what_nobody_measured_beats_nobody():
    assert ids(front([took(1, 1.0), took(2, 2.0, 5.0), took(3, 3.0)])) == [1, 2]
    assert costs(took(1, 1.0))["energy_mj"] is None


def test_a_less_exact_kernel_stays_only_if_it_is_faster():
    assert ids(front([took(1, 1.0, error=1e-3), took(2, 2.0, error=1e-6), took(3, 3.0, error=1e-3)])) == [1, 2]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=200))
def test_the_front_is_exactly_those_whom_nobody_dominates(pairs):
    known = [took(number, ms, energy) for number, (ms, energy) in enumerate(pairs)]
    expected = {
        number
        for number, (ms, energy) in enumerate(pairs)
        if not any(a <= ms and b <= energy and (a, b) != (ms, energy) for a, b in pairs)
    }
    assert set(ids(front(known))) == expected
    batches = Front()
    for start in range(0, len(known), 7):
        batches.add(known[start : start + 7])
    assert batches.records == front(known)


def test_the_figure_shows_latency_against_what_the_front_differs_in():
    drawn = pareto([took(1, 1.0, 5.0, 1e-3), took(2, 2.0, 5.0, 1e-6)])
    assert drawn is not None
    assert drawn.title.endswith("max_error")
    assert [row[0] for row in drawn.rows] == ["c000001", "c000002"]
    assert pareto([]) is None


def test_metrics_and_report_hold_the_front_of_all_generations_so_far(tmp_path):
    running = campaign(tmp_path / "a", "start")
    run = running.run().run
    steps = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    last = [step["pareto"] for step in steps if "pareto" in step][-1]
    expected = {one.id: costs(one) for one in front(run.records())}
    assert expected
    assert last == expected
    assert '"name": "Pareto front"' in (run.path / "report.html").read_text()
