"""The proof of learning runs all its arms, and says so when there is nothing to see."""

from __future__ import annotations

import argparse

import pytest

pytest.importorskip("trl", reason="needs the packages of the extra train")

from benchmarks.learning import measure, prove
from evaluator.task import load_task
from evaluator.types import EvalStatus, Evaluation, KernelSource, Timing
from tests.policy.training import tiny


class ByLength:
    """Passes everything of one task; the longer the source, the quicker the kernel."""

    def __init__(self, name):
        self.task = load_task(name)

    def evaluate(self, jobs):
        for job in jobs:
            ms = 1.0 / len(job.source.text)
            timings = {w.name: Timing(kind="measured", median_ms=ms, baseline_ms=2e-3) for w in self.task.workloads}
            yield (
                job,
                Evaluation(
                    source_sha=job.source.sha,
                    task=self.task.name,
                    evaluator="gpu",
                    status=EvalStatus.PASSED,
                    timings=timings,
                ),
            )


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "rows.jsonl"
    book = measure.Book(path, until=1e18)
    for name in ("softmax", "swiglu"):
        evaluator = ByLength(name)
        seed = KernelSource(text=evaluator.task.seed_source)
        book.judge(evaluator, [("", None, seed)])
        book.judge(evaluator, [(seed.sha, step, child) for step, child in measure.children(evaluator.task, seed.text)])
    return path


def test_every_arm_is_trained_and_judged_on_pairs_it_never_saw(table, tmp_path):
    options = argparse.Namespace(
        base=tiny.make(tmp_path / "model", context=16384),
        measured=table,
        training=("softmax",),
        held_out=("swiglu",),
        seeds=[0],
        answers=2,
        sft_steps=1,
        sft_rate=1e-3,
        rl_steps=1,
        rl_rate=1e-3,
        group=2,
        prompts=1,
        answer_tokens=128,
        context_tokens=16384,
    )
    found = prove.prove(options, tmp_path / "arms")
    assert set(found["arms"]["held_out"]) == {prove.BASE, prove.SFT, prove.RL, prove.SHUFFLED}
    assert not {pair.split("@")[0] for pair in found["pairs"]["training"]} & {
        pair.split("@")[0] for pair in found["pairs"]["held_out"]
    }
    assert found["arms"]["held_out"][prove.RL]["valid"] == 1.0
    assert found["timing_kind"] == "measured"
    assert len(found["curves"][prove.RL][0]) >= 1
    assert set(prove.holds(found).values()) <= {True, False}


def judged(reward):
    from policy.training.judging import Judged

    return Judged(reward)


def test_a_difference_that_all_pairs_share_has_an_interval_above_zero_and_noise_has_not():
    better = [{f"a@{n}": [[judged(0.5 + 0.01 * n)]] for n in range(10)}]
    worse = [{f"a@{n}": [[judged(0.3 + 0.01 * n)]] for n in range(10)}]
    assert prove.difference(better, worse)["low"] > 0
    mixed = [{f"a@{n}": [[judged(0.3 + (0.2 if n % 2 else -0.2))]] for n in range(10)}]
    found = prove.difference(mixed, worse)
    assert found["low"] < 0 < found["high"]
