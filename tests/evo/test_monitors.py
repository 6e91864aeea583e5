"""Monitors say what is known, label modelled numbers, and never stop a campaign."""

from __future__ import annotations

import json

import pytest

from evo.events import Finalists
from evo.monitors import JsonlMonitor, Monitors, Step
from evo.monitors.console import finalists_line, line_of


@pytest.fixture
def step():
    return Step(
        generation=3,
        evaluations=25,
        budget_evaluations=60,
        seconds=12.3,
        batch=8,
        passed=6,
        verdicts={"passed": 6, "compile_error": 2},
        operators={"rewrite": 4, "tune": 4},
        best="c000012",
        best_speedup=1.8312,
        best_latency_ms=0.071,
        timing_kind="modelled",
        population_median=0.2,
        structures=7,
        cells=4,
        qd_score=1.1,
        coverage=0.0021,
        cached=1,
    )


def test_the_plain_line_says_that_a_speedup_is_modelled(step):
    line = line_of(step)
    assert "25/60" in line
    assert "best 1.831x modelled (c000012, 0.071 ms)" in line
    assert "2 compile_error" in line
    assert "cells 4 (0.2%)" in line


def test_the_plain_line_admits_that_nothing_is_correct_yet(step):
    assert "no correct candidate yet" in line_of(step.model_copy(update={"best_speedup": None}))


def test_jsonl_writes_one_object_per_generation(tmp_path, step):
    monitor = JsonlMonitor(tmp_path / "metrics.jsonl")
    monitor.step(step)
    monitor.step(step)
    monitor.close()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["evaluations"] for line in lines] == [25, 25]


def test_finalists_are_one_line_that_says_what_the_search_had_believed(tmp_path):
    over = Finalists(timed=("c000001", "c000002"), best="c000002", best_speedup=1.2, best_before=1.3, seconds=9.0)
    assert finalists_line(over) == "2 finalists timed again: best 1.200x measured (c000002), 1.300x before"
    assert "none is correct" in finalists_line(over.model_copy(update={"best": None, "best_speedup": None}))
    monitor = JsonlMonitor(tmp_path / "metrics.jsonl")
    monitor.finalists(over)
    monitor.close()
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["finalists"]["best"] == "c000002"


def test_a_monitor_that_fails_is_dropped_and_the_others_go_on(step):
    heard = []

    class Broken:
        def candidate(self, record):
            raise OSError("disk full")

        def step(self, step):
            raise OSError("disk full")

        def close(self):
            pass

    class Working(Broken):
        def step(self, step):
            heard.append(step.generation)

    monitors = Monitors([Broken(), Working()])
    with pytest.warns(RuntimeWarning, match="Broken failed and is switched off: disk full"):
        monitors.step(step)
    monitors.step(step)
    assert heard == [3, 3]
