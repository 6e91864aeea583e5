from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.errors import KernevoError
from evaluator.source_hash import ast_hash
from evaluator.types import EvalStatus, StageRecord
from policy import trajectory
from policy.reward import RewardSettings
from policy.trajectory import RunMeta, TornTurnWarning, turns_of
from policy.types import Message
from tests.policy.turns import child, evaluation, sampled_turn, turn

META = RunMeta(run="r", task="softmax", seeds={"campaign": 7}, versions={"triton": "3.9.0"})


def made(*children, **options):
    return list(turns_of(children, META, **options))


def test_a_turn_holds_prompt_answer_verdict_and_reward():
    [found] = made(child(1, evaluation("x = 1\n", speedup=2.0)))
    assert [message.role for message in found.messages] == ["system", "user"]
    assert (found.status, found.speedup, found.parent_speedup) == ("passed", pytest.approx(2.0), 1.0)
    assert (found.timing_kind, found.target, found.seeds["campaign"]) == ("modelled", "h200", 7)
    assert found.reward == pytest.approx(0.8)
    assert sum(found.reward_components.values()) == pytest.approx(found.reward)


def test_a_stored_turn_holds_all_that_learning_needs(path):
    stages = (
        StageRecord(name="static", status=EvalStatus.PASSED, seconds=0.1),
        StageRecord(name="correctness", status=EvalStatus.PASSED, seconds=0.1),
    )
    judged = evaluation("x = 1\n", speedup=2.0, kind="measured", coverage=0.9, interval=(1.9, 2.1)).model_copy(
        update={"stages": stages, "evaluator": "gpu", "evaluator_version": "3"}
    )
    sampling = {"temperature": 0.8, "top_p": 0.95, "top_k": 40, "seed": 5, "logprobs": [-0.5]}
    sampling |= {"prompt_token_ids": [1], "answer_token_ids": [2]}
    write(path, made(child(1, judged, sampling=sampling, policy="openai", policy_version="adapter-3")))
    stored = json.loads(path.read_text())
    expected = {
        **{"run": "r", "task": "softmax", "split": "train", "parent_ids": ["c000000"], "candidate_id": "c000001"},
        **{"turn": 0, "island": 0, "operator": "rewrite", "answer": '{"steps": [1]}'},
        **{"prompt_token_ids": [1], "answer_token_ids": [2], "logprobs": [-0.5]},
        "sampling": {"temperature": 0.8, "top_p": 0.95, "top_k": 40, "seed": 5},
        **{"policy": "openai", "policy_version": "adapter-3", "source": "x = 1\n", "source_sha": judged.source_sha},
        **{"ast_hash": ast_hash("x = 1\n"), "coverage": 0.9, "timing_kind": "measured", "reward_type": "shaped"},
        **{"status": "passed", "verdicts": {"static": "passed", "correctness": "passed"}, "is_hack": False},
        **{"seeds": {"campaign": 7}, "target": "h200", "evaluator": "gpu 3", "versions": {"triton": "3.9.0"}},
    }
    assert {name: stored[name] for name in expected} == expected
    assert stored["group"].startswith("c000000-")
    assert [message["role"] for message in stored["messages"]] == ["system", "user"]
    timing = stored["timings"]["w"]
    assert (timing["kind"], timing["baseline_ms"], timing["ratio_low"]) == ("measured", 1.0, 1.9)
    assert set(stored["reward_components"]) == {"correct", "speed", "coverage"}


def test_a_turn_counts_the_answers_among_its_ancestors():
    seed = child(0, parent_ids=(), messages=(), answer="", operator="seed", source="x = 0\n")
    tuned = child(2, parent_ids=("c000001",), messages=(), answer="", operator="tune")
    turns = made(seed, child(1), tuned, child(3, parent_ids=("c000002",)), child(4, parent_ids=("c000003",)), child(5))
    assert [(found.candidate_id, found.turn) for found in turns] == [
        ("c000001", 0),
        ("c000003", 1),
        ("c000004", 2),
        ("c000005", 0),
    ]


def test_the_reward_type_tells_rewards_apart_that_do_not_compare():
    kinds = [RewardSettings(), RewardSettings(type="profile"), RewardSettings(type="profile", scale=0.5)]
    found = [made(child(1), reward=kind)[0].reward_type for kind in kinds]
    assert found == ["shaped", "profile", "profile * 0.5"]


@pytest.mark.parametrize(
    ("changes", "gap"),
    [
        ({}, ""),
        ({"policy_version": ""}, "no policy version"),
        ({"logprobs": None}, "no token ids or sampling logprobs"),
        ({"prompt_token_ids": None}, "no token ids or sampling logprobs"),
        ({"logprobs": (-0.5,)}, "logprobs that are not one for each answer token"),
        ({"logprobs": (-0.5, math.nan)}, "logprobs that are no logarithms of probabilities"),
    ],
)
def test_a_turn_says_what_it_lacks_for_importance_correction(changes, gap):
    assert sampled_turn(1, **changes).importance_gap == gap


def test_children_of_one_parent_under_one_prompt_form_a_group_in_any_generation():
    first, second = made(child(1), child(2, generation=5))
    assert first.group == second.group


@pytest.mark.parametrize(
    "changes",
    [
        {"messages": (Message(role="user", content="another prompt"),)},
        {"parent_ids": ("c000001",)},
        {"policy_version": "2"},
        {"policy": "another"},
    ],
)
def test_another_prompt_parent_or_policy_is_another_group(changes):
    first, second = made(child(1), child(2, **changes))
    assert first.group != second.group


def test_seeds_and_tuned_configs_make_no_turn_but_lineages_run_through_them():
    seed = child(0, parent_ids=(), messages=(), answer="", operator="seed", source="x = 0\n")
    tuned = child(2, parent_ids=("c000001",), messages=(), answer="", operator="tune")
    turns = made(seed, child(1), tuned, child(3, parent_ids=("c000002",)), child(4))
    assert [found.candidate_id for found in turns] == ["c000001", "c000003", "c000004"]
    assert [found.lineage for found in turns] == ["c000001", "c000001", "c000004"]


def test_a_failure_of_our_own_harness_is_no_turn():
    assert made(child(1, evaluation("x = 1\n", EvalStatus.WORKER_LOST))) == []


def test_the_same_program_as_the_parent_or_an_earlier_child_is_punished():
    unchanged, first, again = made(child(1, source="x = 0  # same\n"), child(2, source="y = 2"), child(3, source="y=2"))
    assert (unchanged.reward, again.reward) == (pytest.approx(-0.3), pytest.approx(-0.3))
    assert first.reward > 0


def test_a_hack_is_marked_and_punished():
    [found] = made(child(1, evaluation("x = 1\n", EvalStatus.FALLBACK)))
    assert found.is_hack
    assert found.reward < 0


def test_the_reward_settings_are_used():
    [found] = made(child(1, evaluation("x = 1\n", speedup=2.0)), reward=RewardSettings(type="profile", scale=0.5))
    assert found.reward == pytest.approx(1.5)


def test_token_ids_and_logprobs_move_out_of_the_sampling():
    sampling = {"temperature": 0.8, "prompt_token_ids": [1, 2], "answer_token_ids": [3], "logprobs": [-0.5]}
    [found] = made(child(1, sampling=sampling))
    assert (found.prompt_token_ids, found.answer_token_ids, found.logprobs) == ((1, 2), (3,), (-0.5,))
    assert found.sampling == {"temperature": 0.8}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trajectories.jsonl"


def write(path, turns):
    path.write_bytes(b"".join(trajectory.encode(one) for one in turns))


def test_what_is_written_is_read_back(path):
    turns = [turn(1), turn(2, answer="é 🚀 \x1b[31m \ud800 \u2028 \\"), turn(3, source="x" * 1_000_000)]
    write(path, turns)
    assert trajectory.read(path) == turns


@given(st.text(st.characters(), max_size=50), st.floats(allow_infinity=False, allow_nan=False) | st.none())
def test_any_text_and_any_number_survive(tmp_path_factory, text, speedup):
    path = tmp_path_factory.mktemp("turns") / "trajectories.jsonl"
    write(path, [turn(1, answer=text, source=text, speedup=speedup)])
    [found] = trajectory.read(path)
    assert (found.answer, found.source, found.speedup) == (text, text, speedup)


@pytest.mark.parametrize("cut", [1, 2, 40, 300])
def test_a_torn_last_line_is_dropped_with_a_warning(path, cut):
    write(path, [turn(1), turn(2)])
    path.write_bytes(path.read_bytes()[:-cut])
    for read in (trajectory.read, trajectory.stream):
        with pytest.warns(TornTurnWarning, match=r"trajectories.jsonl:2"):
            assert list(read(path)) == [turn(1)]


@pytest.mark.parametrize("damage", [b"{}\n", b"not json\n", b"\xff\xfe\n", b"[1]\n"])
def test_any_other_damage_is_an_error_that_names_the_line(path, damage):
    write(path, [turn(1)])
    path.write_bytes(path.read_bytes() + damage + trajectory.encode(turn(2)))
    with pytest.raises(KernevoError, match=r"trajectories.jsonl:2: damaged") as caught:
        trajectory.read(path)
    assert "delete the file" in str(caught.value)
