from __future__ import annotations

import json

import pytest

from benchmarks import gpu_campaign
from evaluator.types import EvalStatus, Evaluation, Timing


def measured(ms: float, baseline_ms: float | None = 1.0) -> Evaluation:
    timing = Timing(kind="measured", median_ms=ms, baseline_ms=baseline_ms)
    return Evaluation(source_sha="0" * 64, task="t", evaluator="gpu", status=EvalStatus.PASSED, timings={"w": timing})


def test_an_elite_that_measures_the_same_again_holds():
    change = gpu_campaign.moved(measured(0.100), measured(0.101))
    assert change["latency"] == pytest.approx(0.01)
    assert gpu_campaign.held(change)


def test_an_elite_that_is_slower_the_second_time_does_not():
    assert not gpu_campaign.held(gpu_campaign.moved(measured(0.100), measured(0.103)))


def test_without_a_baseline_nothing_is_claimed():
    assert not gpu_campaign.held(gpu_campaign.moved(measured(0.1, None), measured(0.1, None)))


@pytest.mark.slow
def test_run_harvest_and_evaluate_follow_each_other(tmp_path, monkeypatch):
    """Without a GPU the cpu evaluator stands in for it: the same commands, the same records."""
    real = gpu_campaign.kernevo

    def on_cpu(*arguments: str) -> str:
        return real(*("cpu" if word == "gpu" else word for word in arguments if word not in ("--baseline", "best")))

    monkeypatch.setattr(gpu_campaign, "kernevo", on_cpu)
    config = tmp_path / "c.yaml"
    config.write_text("task: softmax\nevaluator: {type: cpu}\nbudget: {evaluations: 3}\n")
    found = gpu_campaign.campaign(config, [], tmp_path / "runs")
    assert found["evaluations"] == 3
    assert found["moved"]["latency"] == pytest.approx(0.0)
    assert json.dumps(found)
