"""From a run's journal to the turns that are stored and exported."""

from __future__ import annotations

import json

import pytest

from evaluator.errors import UsageError
from evaluator.task import load_task
from evaluator.types import EvalStatus
from evo.journal import JournalError, TornLineWarning
from evo.turns import stream_turns, turn_of, turns_of_run, write_trajectories
from policy import trajectory
from policy.types import Message
from tests.evo.cli_call import call
from tests.evo.driver import campaign
from tests.evo.run_maker import RunMaker, failed, passed

PROMPT = (Message(role="user", content="make it fast"),)


def filled(path, split="train"):
    """A run of a seed, two answers and a tuned config of the first."""
    maker = RunMaker(path, split=split)
    seed = maker.add("x = 0\n", passed("x = 0\n"))
    first = maker.add("x = 1\n", passed("x = 1\n", 2.0), seed, messages=PROMPT, answer="a", policy_version="3")
    maker.add(
        "x = 2\n", failed("x = 2\n", EvalStatus.COMPILE_ERROR, "compile", "no"), first, messages=PROMPT, answer="b"
    )
    maker.add("x = 3\n", passed("x = 3\n", 3.0), first, operator="tune")
    return maker


def test_turns_come_from_the_journal_in_the_order_of_birth(tmp_path):
    maker = filled(tmp_path / "run")
    turns = list(stream_turns(tmp_path / "run"))
    assert turns == turns_of_run(maker.load())
    assert [(turn.candidate_id, turn.turn, turn.parent_speedup) for turn in turns] == [
        ("c000001", 0, 1.0),
        ("c000002", 1, 2.0),
    ]
    assert (turns[1].status, turns[1].reason, turns[1].parent_source) == ("compile_error", "no", "x = 1\n")
    assert list(turns[1].verdicts.items()) == [("static", "passed"), ("compile", "compile_error")]
    assert turns[0].timings["w"].kind == "modelled"


def test_one_candidates_turn_is_the_one_of_the_whole_run(tmp_path):
    maker = filled(tmp_path / "run")
    assert [turn_of(maker.load(), turn.candidate_id) for turn in stream_turns(tmp_path / "run")] == turns_of_run(
        maker.load()
    )
    assert turn_of(maker.load(), "c000003") is None


def test_the_stored_file_holds_the_same_turns(tmp_path):
    maker = filled(tmp_path / "run")
    write_trajectories(maker.load())
    assert trajectory.read(tmp_path / "run" / "trajectories.jsonl") == turns_of_run(maker.load())


def test_a_torn_last_line_of_the_journal_costs_its_verdict_only(tmp_path):
    filled(tmp_path / "run")
    journal = tmp_path / "run" / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-5])
    with pytest.warns(TornLineWarning, match=r"journal.jsonl:"):
        assert [turn.candidate_id for turn in stream_turns(tmp_path / "run")] == ["c000001", "c000002"]


def test_a_damaged_journal_is_named_with_its_line(tmp_path):
    filled(tmp_path / "run")
    journal = tmp_path / "run" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], b"nonsense\n", *lines[2:]]))
    with pytest.raises(JournalError, match=r"journal.jsonl:2"):
        list(stream_turns(tmp_path / "run"))


def test_a_folder_without_a_run_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="holds no run"):
        list(stream_turns(tmp_path))


@pytest.mark.parametrize(
    ("config", "task", "expected"),
    [("train", "train", "train"), ("held_out", "train", "held_out"), ("train", "held_out", "held_out")],
)
def test_a_run_is_held_out_when_its_config_or_its_task_says_so(tmp_path, config, task, expected):
    made = campaign(tmp_path / "runs" / "one", "start", split=config)
    made.task = made.task.model_copy(update={"split": task})
    made.run()
    assert {turn.split for turn in stream_turns(tmp_path / "runs" / "one")} == {expected}


def test_the_split_changes_no_verdict_so_it_is_no_part_of_a_tasks_fingerprint():
    task = load_task("softmax")
    assert task.split == "train"
    assert task.model_copy(update={"split": "held_out"}).fingerprint == task.fingerprint


def test_a_held_out_run_is_exported_only_when_asked_and_only_to_the_test_split(tmp_path):
    filled(tmp_path / "run", split="held_out")
    wanted = ("export", tmp_path / "run", "--format", "trl-grpo", "--out", tmp_path / "data", "--allow-modelled")
    refused = call(*wanted)
    assert (refused.code, "--allow-held-out" in refused.err) == (2, True)
    written = json.loads(call(*wanted, "--allow-held-out", "--json").out)
    assert written["splits"] == {"test": 2}


def test_two_runs_of_one_name_are_refused(tmp_path):
    filled(tmp_path / "a" / "run")
    filled(tmp_path / "b" / "run")
    both = call("export", tmp_path / "a" / "run", tmp_path / "b" / "run", "--format", "trl-grpo", "--allow-modelled")
    assert both.code == 2
    assert "two runs of one name" in both.err


def test_prompts_for_a_trainer_that_samples_need_the_task_as_it_was(tmp_path):
    filled(tmp_path / "run")
    wanted = ("export", tmp_path / "run", "--format", "verl", "--out", tmp_path / "data", "--allow-modelled")
    refused = call(*wanted)
    assert refused.code == 2
    assert "is not what it was when the run was judged" in refused.err


def test_a_verl_export_brings_a_reward_function_that_judges_as_the_run_did(tmp_path):
    campaign(tmp_path / "runs" / "one", "start").run()
    outcome = call(
        "export",
        tmp_path / "runs" / "one",
        "--format",
        "verl",
        "--out",
        tmp_path / "data",
        "--allow-modelled",
        "--json",
    )
    assert outcome.code == 0, outcome.err
    score = tmp_path / "data" / "compute_score.py"
    assert str(score) in json.loads(outcome.out)["files"]
    found: dict[str, object] = {}
    exec(compile(score.read_text(), str(score), "exec"), found)
    assert found["EVALUATOR"] == {"type": "cpu", "target": "h200"}
    assert found["REWARD"] == {"type": "shaped"}
