"""What each format's rows hold, for the rules that no library checks."""

from __future__ import annotations

import json

import pytest

from evaluator.errors import KernevoError, UsageError
from evaluator.task import load_task
from policy.export import export
from policy.exports.base import Options
from policy.scoring import GroundTruth
from policy.types import Message
from tests.policy.turns import failed_turn, sampled_turn, turn

TASKS = {"r": load_task("softmax")}
ANOTHER = (Message(role="user", content="another prompt"),)


def rows(folder, turns, format, **options):
    tasks = options.pop("tasks", TASKS)
    export(turns, format, folder, force=True, options=Options(tasks=tasks, **options))
    return [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]


def hack(number, **changes):
    return failed_turn(number, **{"status": "decoy", "reward": -0.5, "is_hack": True, **changes})


@pytest.mark.parametrize("format", ["trl-sft", "verl-sft", "prime-sft"])
def test_no_sft_format_takes_a_hack_whatever_its_reward_and_speed(tmp_path, format):
    found = rows(tmp_path, [turn(1), turn(2, is_hack=True, speedup=90.0, reward=9.0)], format)
    assert [row["candidate_id"] for row in found] == ["c000001"]


@pytest.mark.parametrize("format", ["trl-grpo", "prime-rl", "openevolve"])
def test_no_format_gives_a_hack_a_positive_reward(tmp_path, format):
    turns = [sampled_turn(1), sampled_turn(2, is_hack=True, reward=0.9), sampled_turn(3, is_hack=True, reward=-0.5)]
    found = [row.get("metadata", row) for row in rows(tmp_path, turns, format)]
    assert [row["candidate_id"] for row in found] == ["c000001", "c000003"]


def test_dpo_pairs_the_best_child_with_each_worse_one_of_the_same_parent_and_prompt(tmp_path):
    turns = [
        turn(1, reward=0.4),
        turn(2, reward=0.9),
        failed_turn(3),
        hack(4),
        turn(5, reward=0.88),
        failed_turn(6, answer=failed_turn(3).answer),
        turn(7, parent_ids=("c000001",)),
        failed_turn(8, messages=ANOTHER),
    ]
    found = rows(tmp_path, turns, "trl-dpo")
    assert [(row["candidate_id"], row["rejected_id"]) for row in found] == [
        ("c000002", "c000001"),
        ("c000002", "c000003"),
        ("c000002", "c000004"),
    ]
    assert found[1]["chosen"] == [{"role": "assistant", "content": turn(2).answer}]
    assert found[1]["rejected"] == [{"role": "assistant", "content": turn(3).answer}]
    assert all(row["reward"] > row["rejected_reward"] for row in found)


def test_dpo_never_prefers_a_hack_or_a_failure(tmp_path):
    with pytest.raises(KernevoError, match="trl-dpo: none of 3 turns"):
        export([turn(1, is_hack=True, reward=2.0), failed_turn(2), hack(3)], "trl-dpo", tmp_path)


def test_dpo_compares_answers_of_different_policies_to_one_prompt_but_never_equal_answers(tmp_path):
    turns = [turn(1), failed_turn(2, group="g2", policy="openai"), failed_turn(3, group="g2", answer=turn(1).answer)]
    assert [row["rejected_id"] for row in rows(tmp_path, turns, "trl-dpo")] == ["c000002"]


def test_kto_likes_gains_dislikes_failures_hacks_and_losses_and_leaves_the_noise_out(tmp_path):
    turns = [
        turn(1),
        failed_turn(2),
        hack(3),
        turn(4, speedup=0.9),
        turn(5, speedup=1.02),
        turn(6, answer=turn(1).answer),
    ]
    found = rows(tmp_path, turns, "trl-kto")
    assert {row["candidate_id"]: row["label"] for row in found} == {
        "c000001": True,
        "c000002": False,
        "c000003": False,
        "c000004": False,
    }
    assert "1 answers are liked and 3 disliked." in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize(
    ("format", "truth_of"),
    [
        ("verl", lambda row: row["reward_model"]["ground_truth"]),
        ("openrlhf", lambda row: row["label"]),
        ("skyrl", lambda row: row["reward_spec"]["ground_truth"]),
    ],
)
def test_trainers_that_sample_get_each_prompt_once_with_all_that_answers_are_judged_by(tmp_path, format, truth_of):
    turns = [sampled_turn(1), sampled_turn(2), sampled_turn(3, group="c000001-other")]
    found = rows(tmp_path, turns, format)
    assert len(found) == 2
    truth = GroundTruth.model_validate_json(truth_of(found[0]))
    assert truth == GroundTruth(task=TASKS["r"], parent_source="x = 0\n", form="structured")
    with pytest.raises(KernevoError, match="the task of run r is not known"):
        rows(tmp_path, turns, format, tasks={})


def test_prime_rl_rows_align_every_list_with_the_tokens(tmp_path):
    [better, worse] = rows(tmp_path, [sampled_turn(1, reward=0.5), sampled_turn(2, reward=0.1)], "prime-rl")
    assert better["token_ids"] == [1, 2, 3, 4, 5]
    assert better["mask"] == [False, False, False, True, True]
    assert better["logprobs"] == [0, 0, 0, -0.5, -0.25]
    assert better["temperatures"] == [0.8] * 5
    assert better["advantages"] == pytest.approx([0, 0, 0, 0.4, 0.4])
    assert worse["advantages"] == pytest.approx([0, 0, 0, -0.4, -0.4])
    assert better["env_name"] == "kernevo/softmax"


def test_prime_rl_never_reinforces_a_hack_that_beats_its_group(tmp_path):
    # Under `simple` a slow kernel earns less than 0 and a hack exactly 0.
    turns = [sampled_turn(1, reward=-0.6), sampled_turn(2, reward=0.0, is_hack=True), sampled_turn(3, reward=-0.2)]
    found = rows(tmp_path, turns, "prime-rl")
    assert found[1]["advantages"] == [0.0] * 5
    assert found[2]["advantages"][-1] == pytest.approx(0.1)


def test_a_run_without_logprobs_is_refused_for_importance_corrected_training_in_one_line(tmp_path):
    with pytest.raises(UsageError, match="turns of run r have no token ids or sampling logprobs") as caught:
        export([turn(1), turn(2)], "prime-rl", tmp_path / "out")
    assert "\n" not in caught.value.message
    assert not (tmp_path / "out").exists()


def test_a_run_without_a_policy_version_is_refused_too(tmp_path):
    with pytest.raises(UsageError, match="turns of run r have no policy version"):
        export([sampled_turn(1, policy_version="")], "prime-rl", tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"logprobs": None}, "no token ids or sampling logprobs"),
        ({"logprobs": (-0.5,)}, "logprobs that are not one for each answer token"),
        ({"logprobs": (-0.5, 0.1)}, "logprobs that are no logarithms of probabilities"),
        ({"logprobs": (-0.5, float("-inf"))}, "logprobs that are no logarithms of probabilities"),
        ({"sampling": {}}, "no sampling temperature"),
    ],
)
def test_single_turns_that_cannot_be_corrected_are_left_out_and_named(tmp_path, changes, why):
    found = rows(tmp_path, [sampled_turn(1), sampled_turn(2, **changes)], "prime-rl")
    assert [row["candidate_id"] for row in found] == ["c000001"]
    assert f"| {why} | 1 |" in (tmp_path / "README.md").read_text()


def test_openevolve_traces_tell_what_a_step_changed(tmp_path):
    [better, failed] = rows(tmp_path, [turn(1), failed_turn(2)], "openevolve")
    assert (better["parent_id"], better["child_id"], better["generation"]) == ("c000000", "c000001", 1)
    assert better["improvement_delta"] == {
        "combined_score": pytest.approx(0.2),
        "speedup": pytest.approx(0.2),
        "correct": 0,
    }
    assert failed["child_metrics"]["combined_score"] == 0
    assert failed["improvement_delta"]["correct"] == -1
    assert better["prompt"] == {"system": "rules", "user": "make it fast"}
    assert (better["parent_code"], better["child_code"], better["llm_response"]) == (
        "x = 0\n",
        "x = 1\n",
        turn(1).answer,
    )
