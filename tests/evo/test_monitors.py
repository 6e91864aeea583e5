"""Monitors say what is known, label modelled numbers, and never stop a campaign."""

from __future__ import annotations

import json
import math
import sys
import threading
from types import SimpleNamespace

import pytest

from evo.bandit import Credit
from evo.build import MONITORS, make_monitors
from evo.events import Finalists, IslandEnd
from evo.monitors import Behind, JsonlMonitor, Monitors, Step, TensorBoardMonitor, TrackerMonitor
from evo.monitors.console import finalists_line, line_of
from evo.monitors.scalars import scalars_of
from tests.evo.driver import config
from tests.evo.run_maker import RunMaker


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


OVER = Finalists(timed=("c000001",), best="c000001", best_speedup=1.2, best_before=1.3, seconds=9.0)


def test_curves_name_the_kind_of_a_speedup_and_leave_out_what_is_no_number(step):
    island = IslandEnd(generation=1, members=(), gained=0, restarts=0, strategy="open", best_speedup=None)
    more = {"credits": {"tune": Credit(gain=0.5)}, "qd_score": math.nan, "islands": (island,)}
    found = scalars_of(step.model_copy(update=more))
    assert found["best_speedup_modelled"] == 1.8312
    assert (found["verdicts/passed"], found["operators/tune"], found["gain/tune"]) == (6, 4, 0.5)
    assert found["passed_share"] == 0.75
    assert not {"qd_score", "islands/0", "best_speedup"} & found.keys()


class Tracker:
    """A stand-in for trackio and wandb."""

    def __init__(self):
        self.given, self.logged, self.finished = {}, [], False

    def init(self, **given):
        self.given = given
        return self

    def log(self, numbers, step):
        self.logged.append((step, numbers))

    def finish(self):
        self.finished = True


@pytest.mark.parametrize("package", ["trackio", "wandb"])
def test_trackers_get_every_generation_and_continue_a_resumed_run(package, monkeypatch, step, tmp_path):
    tracker = Tracker()
    monkeypatch.setitem(sys.modules, package, tracker)
    monitor = TrackerMonitor(package, "softmax", tmp_path / "one", {"seed": 3})
    monitor.step(step)
    monitor.finalists(OVER)
    monitor.policy({"asked": 40, "failures": {"timeout": 1}})
    monitor.close()
    assert (tracker.given["project"], tracker.given["name"]) == ("kernevo-softmax", "one")
    assert (tracker.given["resume"], tracker.given["config"]) == ("allow", {"seed": 3})
    assert [at for at, _ in tracker.logged] == [25, 25, 25]
    assert tracker.logged[2][1] == {"policy/asked": 40.0}
    assert tracker.finished


def test_tensorboard_can_read_what_its_monitor_wrote(step, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monitor = TensorBoardMonitor(tmp_path)
    monitor.step(step)
    monitor.close()
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    names = [tag for kind in ("scalars", "tensors") for tag in read.Tags()[kind]]
    assert {"best_speedup_modelled", "verdicts/passed"} <= set(names)


def test_a_package_that_is_missing_switches_its_monitor_off_and_names_the_extra(monkeypatch, step, tmp_path):
    monkeypatch.setitem(sys.modules, "wandb", None)
    chosen = config().model_copy(update={"monitors": ("jsonl", "wandb")})
    maker = RunMaker(tmp_path / "run")
    monitors = Monitors(make_monitors(chosen, maker.dir, 0))
    with pytest.warns(RuntimeWarning, match="wandb failed and is switched off: wandb is not installed"):
        monitors.close()
    assert (tmp_path / "run" / "metrics.jsonl").is_file()
    assert {"tensorboard", "trackio", "wandb"} < set(MONITORS)


def test_a_sink_that_hangs_holds_nothing_up_and_is_given_up_at_the_end(step):
    stuck, let_go = threading.Event(), threading.Event()

    def hang(_):
        stuck.set()
        let_go.wait()

    monitors = Monitors([Behind("slow", lambda: SimpleNamespace(step=hang, close=lambda: None), grace_s=0.01)])
    for _ in range(1000):
        monitors.step(step)
    assert stuck.wait(60)
    with pytest.warns(RuntimeWarning, match="slow failed and is switched off: it did not finish"):
        monitors.close()
    let_go.set()


def test_a_sink_that_fails_behind_the_campaign_is_named_at_the_next_call(step):
    failed = threading.Event()

    def fail(_):
        failed.set()
        raise ConnectionError("no route")

    behind = Behind("far", lambda: SimpleNamespace(step=fail, close=lambda: None))
    behind.step(step)
    assert failed.wait(60)
    with pytest.warns(RuntimeWarning, match="far failed and is switched off: no route"):
        Monitors([behind]).close()


def test_everything_sent_before_the_end_arrives_before_the_sink_is_closed(step):
    heard = []
    sink = SimpleNamespace(
        step=lambda step: heard.append(step.generation),
        finalists=lambda over: heard.append("finalists"),
        policy=lambda summary: heard.append("policy"),
        close=lambda: heard.append("closed"),
    )
    behind = Behind("good", lambda: sink)
    behind.step(step)
    behind.finalists(OVER)
    behind.policy({})
    behind.close()
    behind.close()
    assert heard == [3, "finalists", "policy", "closed"]
