"""A proof's result becomes a table and curves; without one the pages say so."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from benchmarks.learning import shown


def curve(*rewards):
    return [
        {"step": step, "loss": 0.1, "mean_reward": reward, "fast@1": 0.5, "entropy": None if step == 1 else 1.0}
        for step, reward in enumerate(rewards, start=1)
    ]


def figures(reward):
    return dict.fromkeys(shown.FIGURES, 0.5) | {"mean_reward": reward}


def result():
    interval = {"mean": 0.1, "low": 0.05, "high": 0.15, "by_pair": {"mean": 0.1, "low": 0.07, "high": 0.13}}
    arms = {"base": figures(0.1), "SFT": figures(0.2), "SFT + RL": figures(0.325), "shuffled <R>": figures(0.2)}
    return {
        "gpu": "NVIDIA H200",
        "model": "SmolLM2-135M-Instruct",
        "seeds": [0, 1],
        "timing_kind": "measured",
        "folds": [
            {"training": ["softmax@a", "softmax@b"], "held_out": ["matmul@a"]},
            {"training": ["matmul@a"], "held_out": ["softmax@a", "softmax@b"]},
        ],
        "arms": {"training": arms, "held_out": arms},
        "valid_without_constraint": {"base": 0.01, "SFT": 0.98},
        "rl_minus_sft": interval,
        "shuffled_minus_sft": {**interval, "mean": -0.02},
        "rl_minus_shuffled": interval,
        "rl_minus_sft_on_training": interval,
        "claim": {"RL is better than SFT": True, "hacks do not rise": False},
        "rl_steps": {
            "steps": 80,
            "seconds": {"generation": 1.0, "evaluation": 0.25, "training": 0.5, "overhead": 0.25, "step": 2.0},
            "overhead_share": 0.125,
            "mismatch_mean_abs": 0.0021,
            "mismatch_max_abs": 0.25,
            "mismatch_rejected": 0.01,
        },
        "curves": {
            "SFT": [[{"step": 1, "loss": 2.0}]],
            "SFT + RL": [curve(0.1, 0.2, 0.4), curve(0.2, 0.2, 0.6)],
            "shuffled <R>": [curve(0.1, 0.1, 0.1), curve(0.1, 0.1)],
        },
        "commit": "0123456789abcdef",
        "command": "python -m benchmarks.learning.prove",
    }


@pytest.fixture
def results(tmp_path):
    (tmp_path / "learning_proof.json").write_text(json.dumps(result()))
    return tmp_path


def test_without_a_result_the_page_says_that_nothing_was_measured(tmp_path):
    assert "not measured yet" in shown.sections(tmp_path, "figures")
    assert "|" not in shown.sections(tmp_path, "figures")


def test_every_arm_difference_and_part_of_the_claim_is_in_the_page(results):
    page = shown.sections(results, "figures")
    assert "not measured yet" not in page
    assert "trained on 2 (task, shape) pairs of softmax, judged on 1 of matmul; trained on 1" in page
    assert "| held out | SFT + RL | 0.325 |" in page
    assert "| RL - SFT | +0.100 | [+0.050, +0.150] | [+0.070, +0.130] |" in page
    assert "| shuffled rewards - SFT | -0.020 |" in page
    assert "*hacks do not rise*: **no**." in page
    assert "(median of 80): 2.00 s, of which generation 1.00 s, evaluation 0.25 s, training 0.50 s, everything" in page
    assert "everything else 12.5%" in page
    assert "differ by 0.0021 on average and 0.25 at most; 1.0% of the answers" in page
    assert "(figures/learning_proof.svg)" in page


def test_each_proof_has_a_section_of_its_own(results):
    (results / "learning_proof_large.json").write_text(json.dumps(result() | {"model": "Large"}))
    page = shown.sections(results, "figures")
    assert page.index("SmolLM2") < page.index("Large chooses")
    assert "figures/learning_proof_large.svg" in page


def test_curves_are_an_image_with_a_line_for_each_seed_and_their_mean(results, tmp_path):
    (path,) = shown.write_curves(results, tmp_path / "figures")
    root = ElementTree.fromstring(path.read_text())
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 3 * (2 + 2 + 1 + 1)  # panels x lines; SFT earns no rewards and has none
    words = [one.text for one in root.findall("{http://www.w3.org/2000/svg}text")]
    assert "shuffled <R>" in words
    assert "SFT" not in words


def test_the_mean_ends_where_a_seed_ends_and_goes_up_on_the_page_when_rewards_rise(results, tmp_path):
    (path,) = shown.write_curves(results, tmp_path / "figures")
    thick = [
        line.get("points").split()
        for line in ElementTree.fromstring(path.read_text()).findall("{http://www.w3.org/2000/svg}polyline")
        if line.get("stroke-width") == "2.4"
    ]
    heights = [float(point.split(",")[1]) for point in thick[0]]
    assert heights[0] > heights[1] > heights[2]
    assert len(thick[1]) == 2


def test_curves_of_a_result_that_is_gone_are_deleted(results, tmp_path):
    shown.write_curves(results, tmp_path / "figures")
    (results / "learning_proof.json").unlink()
    assert shown.write_curves(results, tmp_path / "figures") == []
    assert list((tmp_path / "figures").iterdir()) == []
