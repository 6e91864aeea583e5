"""`kernevo compare` on runs whose candidates and timings are known."""

from __future__ import annotations

import json
import math

import pytest

from evaluator.types import EvalStatus, Timing
from evo.run import Run
from tests.evo.cli_call import call
from tests.evo.driver import campaign
from tests.evo.run_maker import RunMaker, failed, passed

SEED = "x = 1\n"
SLOW = "x = 1\ny = 2\n"
FAST = "x = 1\ny = 2\nz = 3\n"


def judged(source: str, speedup: float, width: float | None = None, **changes):
    """A measured verdict whose ratio is known within ± `width`; a modelled one where no width is given."""
    evaluation = passed(source, speedup)
    if width is None:
        timing = Timing(kind="modelled", median_ms=1 / speedup, baseline_ms=1.0, **changes)
        return evaluation.model_copy(update={"timings": {"w": timing}})
    bounds = {"ratio": speedup, "ratio_low": speedup * (1 - width), "ratio_high": speedup * (1 + width)}
    timing = Timing(kind="measured", median_ms=1 / speedup, baseline_ms=1.0, samples=100, **{**bounds, **changes})
    return evaluation.model_copy(update={"timings": {"w": timing}, "profile": None, "target": "H200"})


def two_runs(tmp_path, first, second, **evaluator):
    """Two run folders, `a` and `b`, with a seed of speedup 1 and one more candidate each."""
    for name, evaluation in (("a", first), ("b", second)):
        maker = RunMaker(tmp_path / name, **evaluator)
        seed = maker.add(SEED, judged(SEED, 1.0, 0.001) if evaluator else judged(SEED, 1.0))
        maker.add(SLOW if name == "a" else FAST, evaluation, seed)
        maker.end_generation({"dram/1d": "c000000", f"latency/{name}": "c000001"})
    return tmp_path / "a", tmp_path / "b"


def document(*runs):
    outcome = call("compare", *runs, "--json")
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def test_a_measured_difference_beyond_both_intervals_exceeds_the_noise(tmp_path):
    runs = two_runs(tmp_path, judged(SLOW, 2.0, 0.01), judged(FAST, 3.0, 0.01), type="gpu")
    said = document(*runs)
    assert said["better"] == str(runs[1])
    assert said["ratio"] == pytest.approx(1.5)
    low, high = said["interval"]
    width = math.hypot(math.log(1.01 / 0.99) / 2, math.log(1.01 / 0.99) / 2)
    assert (low, high) == pytest.approx((1.5 * math.exp(-width), 1.5 * math.exp(width)))
    assert said["exceeds_noise"] is True
    text = " ".join(call("compare", *runs).out.split())
    assert f"better {runs[1]}, its best kernel is 1.500x as fast, measured (95 % interval 1.479 to 1.521)" in text
    assert "noise the difference exceeds the noise" in text


def test_the_better_run_is_named_whichever_comes_first_and_the_interval_is_its_own(tmp_path):
    runs = two_runs(tmp_path, judged(SLOW, 2.0, 0.01), judged(FAST, 3.0, 0.01), type="gpu")
    turned = " ".join(call("compare", *runs[::-1]).out.split())
    assert f"better {runs[1]}, its best kernel is 1.500x as fast, measured (95 % interval 1.479 to 1.521)" in turned


def test_a_measured_difference_inside_the_intervals_is_noise(tmp_path):
    runs = two_runs(tmp_path, judged(SLOW, 2.0, 0.05), judged(FAST, 2.04, 0.05), type="gpu")
    assert document(*runs)["exceeds_noise"] is False
    assert "within the noise" in call("compare", *runs).out


def test_programs_that_both_runs_measured_far_apart_widen_narrow_intervals(tmp_path):
    first, second = two_runs(tmp_path, judged(SLOW, 2.0, 0.001), judged(FAST, 2.1, 0.001), type="gpu")
    assert document(first, second)["exceeds_noise"] is True
    for name, speedup in (("c", 1.0), ("d", 1.1)):  # the same seed, ten per cent apart
        maker = RunMaker(tmp_path / name, type="gpu")
        maker.add(SEED, judged(SEED, speedup, 0.001))
        best, reached = (SLOW, 2.0) if name == "c" else (FAST, 2.1)
        maker.add(best, judged(best, reached, 0.001))
    said = document(tmp_path / "c", tmp_path / "d")
    assert said["shared_programs"] == 1
    assert said["exceeds_noise"] is False
    assert "one program that both judged" in said["basis"]


def test_a_modelled_difference_is_called_so_and_weighed_against_the_models_own_error(tmp_path):
    spread = {"spread_low": 0.8, "spread_high": 1.25}
    runs = two_runs(tmp_path, judged(SLOW, 2.0, **spread), judged(FAST, 2.2, **spread))
    said = document(*runs)
    assert said["timing_kind"] == "modelled"
    assert said["exceeds_noise"] is False
    far = two_runs(tmp_path / "far", judged(SLOW, 2.0, **spread), judged(FAST, 8.0, **spread))
    assert document(*far)["exceeds_noise"] is True
    text = call("compare", *far).out
    assert "4.000x as fast, modelled" in " ".join(text.split())
    assert "measured" not in text.replace(str(tmp_path), "")


def test_without_calibration_noise_cannot_be_told(tmp_path):
    runs = two_runs(tmp_path, judged(SLOW, 2.0), judged(FAST, 8.0))
    said = document(*runs)
    assert said["exceeds_noise"] is None
    assert said["interval"] is None
    assert "cannot be told: the cost model is not calibrated" in call("compare", *runs).out


def test_the_same_program_in_both_modelled_runs_is_no_difference(tmp_path):
    for name in "ab":
        RunMaker(tmp_path / name).add(SEED, judged(SEED, 1.0))
    said = document(tmp_path / "a", tmp_path / "b")
    assert (said["better"], said["exceeds_noise"]) == (None, False)
    assert "neither: their best are alike" in call("compare", tmp_path / "a", tmp_path / "b").out


def test_the_searches_stand_side_by_side(tmp_path):
    for name, speedups in (("a", (1.0, 1.5, 1.97, 2.0)), ("b", (1.0, 3.0, 1.1))):
        maker = RunMaker(tmp_path / name)
        for number, speedup in enumerate(speedups):
            source = f"{SEED}n = {number}\n"
            maker.add(source, judged(source, speedup))
        maker.add("bad = 1\n", failed("bad = 1\n", EvalStatus.WRONG_VALUE, "smoke"))
        maker.end_generation({"dram/1d": "c000001", f"latency/{name}": "c000000"})
    one, two = document(tmp_path / "a", tmp_path / "b")["runs"]
    assert (one["evaluations_to_95_of_own_best"], one["evaluations_to_95_of_better_best"]) == (3, None)
    assert (two["evaluations_to_95_of_own_best"], two["evaluations_to_95_of_better_best"]) == (2, 2)
    assert one["qd_score"] == pytest.approx(math.log(1.5))
    assert one["cells"] == ["dram/1d", "latency/a"]
    assert (one["reached"]["smoke"], one["reached"]["model"]) == (5, 4)
    assert two["verdicts"] == {"wrong_value": 1, "passed": 3}
    text = call("compare", tmp_path / "a", tmp_path / "b").out
    assert "2, 1 of them not in the other" in text
    assert "never" in text


def test_a_run_with_a_correct_kernel_beats_one_without(tmp_path):
    RunMaker(tmp_path / "a").add(SEED, failed(SEED, EvalStatus.WRONG_VALUE, "smoke"))
    RunMaker(tmp_path / "b").add(SEED, judged(SEED, 1.0))
    outcome = call("compare", tmp_path / "a", tmp_path / "b")
    assert outcome.code == 0
    assert f"{tmp_path / 'b'}: the other run holds no correct kernel" in outcome.out


def test_two_runs_without_a_correct_kernel_leave_with_3(tmp_path):
    for name in "ab":
        RunMaker(tmp_path / name).add(SEED, failed(SEED, EvalStatus.WRONG_VALUE, "smoke"))
    outcome = call("compare", tmp_path / "a", tmp_path / "b")
    assert outcome.code == 3
    assert "no correct kernel in either" in outcome.out


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"type": "gpu"}, "latencies are modelled in one and measured in the other"),
        ({"task": "matmul"}, "different tasks, softmax and matmul"),
    ],
)
def test_runs_of_another_kind_or_task_are_refused_in_one_line(tmp_path, changes, why):
    RunMaker(tmp_path / "a").add(SEED, judged(SEED, 1.0))
    RunMaker(tmp_path / "b", **changes).add(SEED, judged(SEED, 1.0))
    refused(tmp_path, why)


def test_runs_over_another_baseline_are_refused(tmp_path):
    for name, baseline in (("a", "eager"), ("b", "compile")):
        RunMaker(tmp_path / name, type="gpu", baseline=baseline).add(SEED, judged(SEED, 1.0, 0.01))
    refused(tmp_path, "different baselines, eager and compile")


def test_runs_of_another_gpu_or_other_workloads_are_refused(tmp_path):
    RunMaker(tmp_path / "a").add(SEED, judged(SEED, 1.0))
    elsewhere = judged(SEED, 1.0).model_copy(update={"target": "a100"})
    RunMaker(tmp_path / "b").add(SEED, elsewhere)
    refused(tmp_path, "different hardware, h200 and a100")
    other = judged(SEED, 1.0)
    RunMaker(tmp_path / "c").add(SEED, other.model_copy(update={"timings": {"v": other.timings["w"]}}))
    refused(tmp_path, "different workloads, v, w in one of them only", "c")


def refused(tmp_path, why, second="b"):
    outcome = call("compare", tmp_path / "a", tmp_path / second)
    assert outcome.code == 2
    assert outcome.out == ""
    first_line = outcome.err.splitlines()[0]
    assert "cannot be compared" in first_line
    assert why in first_line


def test_a_run_is_not_compared_with_itself(tmp_path):
    RunMaker(tmp_path / "a").add(SEED, judged(SEED, 1.0))
    outcome = call("compare", tmp_path / "a", tmp_path / "a")
    assert outcome.code == 2
    assert "the same run twice" in outcome.err


def test_a_baseline_that_took_another_time_is_a_warning(tmp_path):
    runs = two_runs(tmp_path, judged(SLOW, 2.0), judged(FAST, 2.0))
    assert "the baseline took" not in call("compare", *runs).err
    drifted = Timing(kind="modelled", median_ms=0.5, baseline_ms=1.2)
    RunMaker(tmp_path / "c").add(FAST, judged(FAST, 2.0).model_copy(update={"timings": {"w": drifted}}))
    assert "w: the baseline took 1 ms and 1.2 ms, modelled" in call("compare", runs[0], tmp_path / "c").err


def test_campaigns_can_be_compared_as_they_are(tmp_path):
    campaign(tmp_path / "a", "start").run()
    (tmp_path / "b").mkdir()
    again = campaign(tmp_path / "b", "start")
    again.config = again.config.model_copy(update={"seed": 12})
    again.run()
    said = document(tmp_path / "a", tmp_path / "b")
    bests = [Run.load(tmp_path / name).elites(1)[0].speedup for name in "ab"]
    assert said["ratio"] == pytest.approx(bests[1] / bests[0])
    assert said["warnings"] == []
