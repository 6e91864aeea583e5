"""The fit finds a model that made the measurements, leaves alone what they do not determine, and scores honestly."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evaluator import hardware
from evaluator.calibrate import (
    PARAMETERS,
    Fit,
    Observation,
    Table,
    fit,
    leave_tasks_out,
    moved,
    scores,
    softened,
    spreads,
    value_of,
)
from evaluator.calibration import Calibration, Spread, calibrated, calibration, digest
from evaluator.cost_model import DEFAULT
from evaluator.errors import HarnessError
from tests.evaluator.test_cost_model import resources, trace

H200 = hardware.get("h200")
DOCUMENTED = Fit(H200, DEFAULT)


def observations(model, noise=0.0, tasks=("softmax", "layer_norm", "sum_reduction")):
    """Structures of some tasks under several configs, "measured" by `model` with log-normal noise."""
    rng = np.random.default_rng(0)
    found = []
    for number, task in enumerate(tasks):
        for structure in range(3):
            for warps, block in ((1, 256), (2, 512), (4, 1024), (8, 4096), (4, 256), (8, 512)):
                for rows, row_bytes in ((16384, 16384), (4096, 4096), (1024, 65536)):
                    launch = trace(rows, row_bytes, passes=structure + 1, block=block)
                    kernel = resources(warps=warps, registers=32 + 8 * structure + 16 * number)
                    pair = [(launch, kernel)]
                    found.append(Observation(task, f"family {number % 2}", structure, f"{rows}", pair, 1.0))
    logs = Table.of(found, H200).predicted(model) + noise * rng.normal(size=len(found))
    return [seen._replace(measured_ms=math.exp(log)) for seen, log in zip(found, logs, strict=True)]


def changed(**factors):
    logs = [
        math.log(value_of(DOCUMENTED, parameter.name) * factors.get(parameter.name, 1.0)) for parameter in PARAMETERS
    ]
    return moved(DOCUMENTED, np.array(logs))


TRUTH = changed(dram_reach=0.85, program_s=2.0, memory_instruction=2.0, **{"hardware.dram_latency_s": 1.7})


def test_a_parameter_is_read_and_written_wherever_it_lives():
    for name in ("overlap", "issue_cost.fma", "hardware.launch_s"):
        assert value_of(changed(**{name: 1.5}), name) == pytest.approx(1.5 * value_of(DOCUMENTED, name))


def test_the_fit_predicts_a_task_it_has_not_seen_better_than_the_defaults():
    held = leave_tasks_out(observations(TRUTH, noise=0.05), H200)
    before, after = scores(held.observations, held.before), scores(held.observations, held.after)
    assert before.median_abs_log_error > 0.15
    assert after.median_abs_log_error < 0.06
    assert after.config_tau >= before.config_tau > 0.5


def test_measurements_that_agree_with_the_defaults_change_nothing():
    found = fit(observations(DOCUMENTED), H200)
    for parameter in PARAMETERS:
        assert value_of(found, parameter.name) == pytest.approx(value_of(DOCUMENTED, parameter.name), rel=0.02)


def test_what_the_measurements_do_not_determine_stays_at_its_default():
    found = fit(observations(TRUTH), H200)  # no tile product among them
    for name in ("mma_share", "tile_overhead"):
        assert value_of(found, name) == pytest.approx(value_of(DOCUMENTED, name), rel=1e-3)
    assert value_of(found, "program_s") == pytest.approx(value_of(TRUTH, "program_s"), rel=0.3)


def test_a_few_wild_measurements_do_not_spoil_the_fit():
    seen = observations(TRUTH, noise=0.02)
    wild = [one._replace(measured_ms=one.measured_ms * 30) if row % 25 == 0 else one for row, one in enumerate(seen)]
    table = Table.of(seen, H200)
    errors = np.abs(table.log_ms - table.predicted(fit(wild, H200)))
    assert np.median(errors) < 0.06


def test_soft_errors_are_like_plain_ones_when_small_and_grow_slower_when_large():
    assert softened(np.array([0.01]))[0] == pytest.approx(0.01, rel=1e-2)
    assert softened(np.array([-2.0]))[0] > -1.0
    assert softened(np.array([-2.0]))[0] < 0


def listed(measured, structures, task="softmax"):
    pair = [(trace(), resources())]
    return [
        Observation(task, "reduction", structure, "w", pair, ms)
        for ms, structure in zip(measured, structures, strict=True)
    ]


def test_a_perfect_order_scores_one_and_a_reversed_one_minus_one():
    seen = listed([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0, 0, 0, 1, 1, 1])
    logs = np.log([one.measured_ms for one in seen])
    right, wrong = scores(seen, logs), scores(seen, -logs)
    assert (right.config_tau, right.structural_tau, right.regret_top10, right.config_regret) == (1.0, 1.0, 0.0, 0.0)
    assert (wrong.config_tau, wrong.structural_tau) == (-1.0, -1.0)
    assert wrong.regret_top10 == pytest.approx(5.0)
    assert wrong.config_regret == pytest.approx((3 / 1 + 6 / 4) / 2 - 1)


def test_orders_of_configs_and_of_structures_are_scored_apart():
    seen = listed([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0, 0, 0, 1, 1, 1])
    swapped = np.log([4.0, 5.0, 6.0, 1.0, 2.0, 3.0])
    found = scores(seen, swapped)
    assert (found.config_tau, found.structural_tau) == (1.0, -1.0)


def test_a_model_that_sees_no_difference_scores_zero():
    assert scores(listed([1.0, 2.0, 3.0], [0, 0, 0]), np.zeros(3)).config_tau == 0.0


def test_the_spread_holds_eight_of_ten_measurements():
    held = leave_tasks_out(observations(TRUTH, noise=0.2), H200)
    overall, by_family = spreads(held)
    ratios = np.exp([math.log(seen.measured_ms) for seen in held.observations] - held.after)
    assert np.mean((ratios >= overall.low) & (ratios <= overall.high)) == pytest.approx(0.8, abs=0.02)
    assert set(by_family) == {"family 0", "family 1"}
    assert sum(spread.points for spread in by_family.values()) == overall.points == len(held.observations)


def test_one_task_alone_cannot_be_left_out():
    with pytest.raises(ValueError, match="two tasks"):
        leave_tasks_out(observations(TRUTH, tasks=("softmax",)), H200)


def written(folder):
    spread = Spread(low=0.8, high=1.5, points=10)
    found = Calibration(
        target="h200",
        coefficients=TRUTH.coefficients,
        hardware={"dram_latency_s": TRUTH.hardware.dram_latency_s},
        spread=spread,
        spread_by_family={"matmul": Spread(low=0.9, high=1.1, points=4)},
        scores={},
        provenance={},
    )
    (folder / "h200.json").write_text(found.model_dump_json())
    return found


def test_a_calibration_comes_back_as_it_was_written_and_knows_its_families(tmp_path):
    assert calibration("h200", tmp_path) is None
    assert digest("h200", tmp_path) == ""
    calibration.cache_clear()
    found = written(tmp_path)
    assert calibration("h200", tmp_path) == found
    assert found.applied(H200).dram_latency_s == pytest.approx(1.7 * H200.dram_latency_s)
    assert found.spread_of("matmul").high == 1.1
    assert found.spread_of("unseen").high == 1.5
    assert len(digest("h200", tmp_path)) == 64


def test_a_broken_calibration_says_so(tmp_path):
    (tmp_path / "h200.json").write_text('{"target": "h200"}')
    with pytest.raises(HarnessError, match=r"h200\.json"):
        calibration("h200", tmp_path)


def test_a_target_without_calibration_is_modelled_with_the_documented_numbers():
    assert calibrated(hardware.get("l40s")) == (hardware.get("l40s"), DEFAULT)
