from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from benchmarks import gpu_policy
from benchmarks.gpu_policy import Recorder, complaints, overlapping
from evaluator.gpu_lock import GpuLock
from evaluator.task import load_task
from tests.policy.tiny_model import write_tiny_model


def test_intervals_overlap_when_they_share_a_moment():
    policy = [("chat", 0.0, 1.0), ("chat", 2.0, 3.0)]
    assert overlapping(policy, [("alone", 1.0, 2.0), ("alone", 3.5, 4.0)]) == []
    assert overlapping(policy, [("alone", 2.9, 5.0)]) == [(policy[1], ("alone", 2.9, 5.0))]
    assert overlapping(policy, [("alone", 0.2, 0.3)]) == [(policy[0], ("alone", 0.2, 0.3))]
    assert gpu_policy.nearest_ms(policy, [("alone", 1.25, 1.5)]) == pytest.approx(250.0)


def test_a_policy_that_ignores_the_lock_is_found_out(tmp_path):
    recorder = Recorder()
    with recorder.watching():
        lock = GpuLock("GPU-a", tmp_path)
        with lock.exclusive():
            recorder.call("chat", lambda: None)
        with lock.shared():
            recorder.call("chat", lambda: None)
    assert recorder.lock is lock
    (first,) = [pair[0] for pair in overlapping(recorder.used, recorder.alone)]
    assert first is recorder.used[0]


GOOD = {
    "overlaps": 0,
    "unusable": {},
    "valid_share": 1.0,
    "failures": {},
    "turns": 3,
    "turns_with_logprobs": 3,
    "policy_intervals": [("chat", 0.0, 1.0)],
    "alone_intervals": [("alone", 1.0, 2.0)],
    "best_speedup": 1.1,
}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"overlaps": 1}, "while the evaluator timed"),
        ({"valid_share": 0.99, "unusable": {"bad_json": 1}}, "bad_json"),
        ({"turns_with_logprobs": 2}, "log-probabilities"),
        ({"turns": 0, "turns_with_logprobs": 0}, "no answer of the model"),
        ({"policy_intervals": [("wake", 0.0, 1.0)]}, "nothing was written"),
        ({"alone_intervals": []}, "nothing was timed"),
        ({"failures": {"server_error": 1}}, "server_error"),
        ({"best_speedup": None}, "no candidate passed"),
    ],
)
def test_what_would_prove_nothing_is_complained_of(changes, word):
    assert complaints(GOOD) == []
    (said,) = complaints({**GOOD, **changes})
    assert word in said


@pytest.mark.slow
def test_model_and_evaluator_share_a_device_without_meeting(tmp_path):
    """On the interpreter platform, with a tiny random model."""
    model = write_tiny_model(tmp_path / "model", [load_task("softmax").seed_source or ""])
    overrides = ["search.offspring=4", "search.population=4", "policy.max_tokens=256"]
    options = argparse.Namespace(
        model=model, policy="transformers", generations=2, interpreter=True, overrides=overrides, out=Path("x")
    )
    found = gpu_policy.campaign(options, tmp_path)
    assert complaints(found) == []
    assert found["generations"] == 2
    assert found["task"] == "small softmax"
    assert json.dumps(found)
