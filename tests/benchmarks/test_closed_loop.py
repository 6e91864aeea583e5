"""Learning is compared with the frozen policy at equal evaluations, and says what came of it either way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import closed_loop, tables
from evo.config_file import load_config
from tests.policy.training import tiny


def arm(best, *curve, trainings=()):
    logs = closed_loop.mean_log([*curve, best])
    return {"best": best, "curve": [*curve, best], "mean_log_best": logs, "trainings": list(trainings), "seconds": 1.0}


def test_learning_is_better_only_when_it_is_in_every_seed():
    won = {"learning": arm(2.0, 1.0), "frozen": arm(1.0, 1.0)}
    lost = {"learning": arm(1.0, 1.0), "frozen": arm(1.25, 1.0)}
    assert closed_loop.compared([won, won])["learning_is_better"]
    found = closed_loop.compared([won, lost, won])
    assert not found["learning_is_better"]
    assert found["best_ratio"] == [2.0, 0.8, 2.0]
    assert found["median_best_ratio"] == 2.0


def test_a_curve_that_climbs_earlier_is_worth_more_at_the_same_end():
    found = closed_loop.compared([{"learning": arm(4.0, 4.0), "frozen": arm(4.0, 1.0)}])
    assert found["best_ratio"] == [1.0]
    assert found["curve_ratio"] == [2.0]
    assert not found["learning_is_better"]


@pytest.mark.parametrize("evaluations", [49, 57, 65])
def test_two_trainings_lie_between_three_rounds_of_search_and_nothing_else_differs(tmp_path, evaluations):
    (tmp_path / "config.json").write_text("{}")
    options = closed_loop.parsed(
        ["--model", str(tmp_path), "--folder", str(tmp_path), "--evaluations", str(evaluations)]
    )
    made = {arm: load_config(closed_loop.write_config(options, arm, 1), []) for arm in closed_loop.ARMS}
    assert made["learning"].model_copy(update={"learning": None}) == made["frozen"]
    every, generations = made["learning"].learning.every, (evaluations - 1) // closed_loop.OFFSPRING
    assert [g for g in range(1, generations + 1) if g % every == 0] == [every, 2 * every]
    assert made["learning"].learning.probe == 0  # nothing is judged beside the candidates


@pytest.mark.slow
def test_both_arms_run_and_what_is_done_is_not_done_again(tmp_path):
    model = tiny.make(tmp_path / "tiny", context=16384)
    words = ["--model", str(model), "--folder", str(tmp_path / "f"), "--evaluator", "cpu", "--task", "sum_reduction"]
    words += ["--seeds", "0", "--evaluations", "17", "--steps", "1", "--out", str(tmp_path / "closed_loop.json")]
    code = closed_loop.main(words)
    found = json.loads((tmp_path / "closed_loop.json").read_text())
    assert code == (0 if found["learning_is_better"] else 1)
    (campaigns,) = found["campaigns"]
    assert all(len(one["curve"]) == 17 for one in campaigns.values())
    assert campaigns["learning"]["trainings"]
    assert not campaigns["frozen"]["trainings"]
    times = {path: path.stat().st_mtime_ns for path in Path(tmp_path / "f").glob("*.json")}
    assert closed_loop.main(words) == code
    assert {path: path.stat().st_mtime_ns for path in Path(tmp_path / "f").glob("*.json")} == times
    shown = tables.SECTIONS["closed_loop"](found)
    assert "*modelled*" in shown
    assert f"| 0 | {campaigns['learning']['best']:.3f}x |" in shown
