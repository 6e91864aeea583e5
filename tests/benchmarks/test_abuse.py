"""What the abuse benchmark calls a problem, and one small run of it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks import abuse
from benchmarks.abuse import Judged, bad_rows, good_rows, problems, shifts
from benchmarks.abuse_kernels import ABUSES, Planned, alone, good_kinds, plan
from benchmarks.tables import SECTIONS
from evaluator.types import EvalStatus, Evaluation, KernelSource, Timing

PASSED, TIMEOUT = EvalStatus.PASSED, EvalStatus.TIMEOUT


def judged(kind, status=PASSED, ms=1.0, allowed=None):
    timings = {"w": Timing(kind="measured", median_ms=ms)} if status.passed else {}
    found = Evaluation(
        source_sha="0", task="row_sums", evaluator="gpu", status=status, reason="said so", timings=timings
    )
    return Judged(Planned(kind, KernelSource(text=""), allowed), found)


def result(*mixed, platform="cuda", **changed):
    """A result in which good kernels take 1 ms alone."""
    good = good_rows([judged("seed", ms=ms) for ms in (0.5, 1.0, 2.0)], mixed)
    made = {
        "platform": platform,
        "asked_for": len(mixed),
        "candidates": len(mixed),
        "good_candidates": sum(one.planned.allowed is None for one in mixed),
        "good": good,
        "latency_shift": shifts(good),
        "bad": bad_rows(mixed),
        "processes_left": [],
        "folders_left": [],
        "gpu_memory_bytes": {"at_start": 0, "before": 1 << 30, "after": 1 << 30},
        "seconds": 1.0,
        "candidates_per_minute": 60.0,
    }
    return {**made, **changed}


HANG = judged("hangs", TIMEOUT, allowed=frozenset({TIMEOUT}))


def test_good_ones_as_alone_and_bad_ones_found_are_no_problem():
    found = result(judged("seed"), judged("seed", ms=1.02), HANG)
    assert problems(found) == []
    assert found["latency_shift"] == {"median": 0.01, "worst": 0.02}


def test_candidates_that_time_did_not_allow_are_a_problem():
    assert problems(result(judged("seed"), HANG, asked_for=5)) == ["3 candidates were not begun in time"]


def test_no_candidate_is_begun_once_the_time_is_up():
    judged_in_time, left, _ = abuse.run("interpreter", plan(4, 1), until=0.0)
    assert judged_in_time == []
    assert left.processes == []


@pytest.mark.parametrize(
    ("mixed", "words"),
    [
        ([judged("seed", EvalStatus.OUT_OF_MEMORY)], "seed: gets another verdict among bad ones"),
        ([judged("seed", ms=1.05)], "moved by 5.0% (median"),
        ([judged("seed"), judged("seed"), judged("seed", ms=0.85)], "moved by 15.0% (worst"),
        ([judged("hangs", PASSED, allowed=frozenset({TIMEOUT}))], "hangs: passes"),
        ([judged("hangs", EvalStatus.HARNESS_ERROR, allowed=frozenset({TIMEOUT}))], "blamed on the harness: said so"),
        ([judged("hangs", EvalStatus.WORKER_LOST, allowed=frozenset({TIMEOUT}))], "blamed on the harness"),
    ],
)
def test_what_abuse_costs_is_said(mixed, words):
    (line,) = problems(result(*mixed))
    assert words in line


@pytest.mark.parametrize(
    ("left", "words"),
    [
        ({"processes_left": ["python -m evaluator.zygote"]}, "still running after closing: python"),
        ({"folders_left": ["/tmp/kernevo-x"]}, "not removed: /tmp/kernevo-x"),
        ({"gpu_memory_bytes": {"at_start": 0, "before": 0, "after": 65 << 20}}, "GPU memory went from 0 MiB to 65 MiB"),
        ({"gpu_memory_bytes": {"at_start": 0, "before": 65 << 20, "after": 0}}, "GPU memory went from 65 MiB to 0 MiB"),
    ],
)
def test_what_is_left_over_is_said(left, words):
    (line,) = problems(result(judged("seed"), **left))
    assert words in line


def test_a_kernel_that_does_not_pass_alone_shows_nothing():
    found = result(judged("seed"))
    found["good"] = good_rows([judged("seed", TIMEOUT)], [judged("seed", TIMEOUT)])
    assert "seed: does not pass alone" in problems(found)[0]


def test_another_name_for_harm_is_shown_but_costs_nobody_anything():
    found = result(judged("seed"), judged("hangs", EvalStatus.EXITED, allowed=frozenset({TIMEOUT})))
    assert problems(found) == []
    assert found["bad"]["hangs"]["as_allowed"] is False


def test_without_a_gpu_neither_latency_nor_device_memory_counts():
    memory = {"at_start": None, "before": None, "after": None}
    assert problems(result(judged("seed", ms=3.0), platform="interpreter", gpu_memory_bytes=memory)) == []


def test_a_child_that_stays_is_seen_and_ended(monkeypatch):
    monkeypatch.setattr(abuse, "GRACE_S", 0.0)
    before = abuse.descendants()
    with subprocess.Popen([sys.executable, "-c", "input()  # stays"], stdin=subprocess.PIPE) as child:
        (line,) = abuse.remaining(before)
        assert "stays" in line
        child.wait(20)
        assert abuse.remaining(before) == []


def test_a_third_of_the_candidates_is_bad_in_every_way_and_no_two_are_equal():
    planned = plan(200)
    bad = [one for one in planned if one.allowed is not None]
    assert len(bad) == 67
    assert {one.kind for one in bad} == {one.name for one in ABUSES}
    assert {one.kind for one in planned} - {one.kind for one in bad} == set(good_kinds())
    sources = [one.source.sha for one in [*planned, *alone(3)]]
    assert len(set(sources)) == len(sources)


def test_readme_tells_how_many_good_and_bad_ones_got_their_verdict():
    found = {**result(judged("seed"), judged("seed"), HANG), "commit": "abcdef0123456", "command": "python x"}
    text = SECTIONS["abuse"]({**found, "gpu": "Some GPU"})
    assert "(Some GPU)" in text
    assert "verdict they get alone | 2 of 2 |" in text
    assert "names their harm | 1 of 1 |" in text
    assert "+0 MiB" in text


@pytest.mark.slow
def test_a_small_run_without_a_gpu(tmp_path):
    """Four good kernels beside one that hangs and one that segfaults."""
    out = tmp_path / "abuse.json"
    code = abuse.main(["--count", "6", "--platform", "interpreter", "--out", str(out)])
    found = json.loads(out.read_text())
    assert (code, found["problems"]) == (0, [])
    assert sum(row["mixed"]["passed"] for row in found["good"].values()) == found["good_candidates"] == 4
    assert {kind: row["as_allowed"] for kind, row in found["bad"].items()} == {one.name: True for one in ABUSES[:2]}
    assert {"commit", "versions", "hardware", "command"} <= set(found)
