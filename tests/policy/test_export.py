from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc

import pytest

from evaluator.errors import EnvironmentUnusableError, KernevoError, UsageError
from evaluator.task import load_task
from policy.export import FORMATS, export
from policy.exports import writer
from policy.exports.base import Options
from tests.policy.turns import failed_turn, sampled_turn, turn

datasets = pytest.importorskip("datasets")

LEARNING_COLUMNS = {"task", "split", "group", "candidate_id", "parent_id", "reward", "reward_components", "speedup"}
LEARNING_COLUMNS |= {"timing_kind", "status", "answer", "source"}
TASKS = {"r": load_task("softmax"), "s": load_task("swiglu")}
NASTY = 'é 🚀 \u2028 \x1b[31m \\ "quoted" </script> {{ }} \r\n\ttab \x00'


@pytest.fixture(autouse=True)
def _offline(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def load(folder):
    return datasets.load_dataset(str(folder), split="train")


def mixed():
    return [
        turn(1),
        failed_turn(2),
        turn(3, speedup=1.02, reward=0.31),
        failed_turn(4, status="decoy", reward=-0.5, is_hack=True, reward_components={"hack": -0.5}),
    ]


def test_grpo_rows_load_with_conversational_prompts_and_every_column(tmp_path):
    done = export(mixed(), "trl-grpo", tmp_path / "out")
    rows = load(tmp_path / "out")
    assert done.rows == len(rows) == 4
    assert set(rows.column_names) >= {"prompt"} | LEARNING_COLUMNS
    assert rows[0]["prompt"] == [
        {"role": "system", "content": "rules"},
        {"role": "user", "content": "make it fast"},
    ]
    assert rows[0]["reward_components"] == {"correct": 0.3, "hack": 0.0, "speed": 0.13, "wrong": 0.0}
    assert [row["timing_kind"] for row in rows] == ["measured", None, "measured", None]


def test_sft_rows_are_whole_conversations_of_steps_that_gained(tmp_path):
    export(mixed(), "trl-sft", tmp_path / "out")
    [row] = load(tmp_path / "out")
    assert [message["role"] for message in row["messages"]] == ["system", "user", "assistant"]
    assert row["messages"][-1]["content"] == turn(1).answer
    assert row["gain"] == pytest.approx(0.2)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_loads_from_jsonl_and_from_parquet_alike_with_the_rows_it_says(tmp_path, name):
    turns = [*mixed(), sampled_turn(5), sampled_turn(6, reward=0.1)]
    done = export(turns, name, tmp_path / "out", options=Options(tasks=TASKS))
    parquet = datasets.load_dataset("parquet", data_files=str(tmp_path / "out" / "train.parquet"), split="train")
    rows = load(tmp_path / "out")
    assert rows.to_list() == parquet.to_list()
    assert rows.features == parquet.features
    assert done.rows == len(rows) > 0
    assert f"rows: {done.rows}, of" in (tmp_path / "out" / "README.md").read_text()


def test_a_hack_never_reaches_sft_whatever_its_reward_says(tmp_path):
    hack = turn(2, is_hack=True, speedup=90.0)
    export([turn(1), hack], "trl-sft", tmp_path / "sft")
    assert [row["candidate_id"] for row in load(tmp_path / "sft")] == ["c000001"]
    with pytest.raises(KernevoError, match="none of 1 turns"):
        export([hack], "trl-sft", tmp_path / "none")


def test_a_hack_with_a_positive_reward_never_reaches_grpo(tmp_path):
    export([turn(1), turn(2, is_hack=True, reward=0.9)], "trl-grpo", tmp_path / "out")
    assert [row["candidate_id"] for row in load(tmp_path / "out")] == ["c000001"]


def test_sft_measures_gain_against_the_parent_and_the_lower_bound(tmp_path):
    turns = [
        turn(1, speedup=2.0, parent_speedup=1.95),
        turn(2, speedup=2.0, speedup_low=1.01, parent_speedup=1.0),
        turn(3, speedup=0.9, parent_speedup=0.6),
        turn(4, speedup=1.06, parent_speedup=None),
    ]
    export(turns, "trl-sft", tmp_path / "out")
    assert [row["candidate_id"] for row in load(tmp_path / "out")] == ["c000003", "c000004"]


def test_sft_keeps_the_largest_gains_of_each_lineage(tmp_path):
    long = [turn(number, lineage="a", speedup=1 + number / 10) for number in range(1, 6)]
    export([*long, turn(9, lineage="b")], "trl-sft", tmp_path / "out", options=Options(per_lineage=2))
    assert [row["candidate_id"] for row in load(tmp_path / "out")] == ["c000004", "c000005", "c000009"]


def test_modelled_timings_are_refused_with_the_way_to_allow_them(tmp_path):
    turns = [turn(1, timing_kind="modelled"), failed_turn(2)]
    with pytest.raises(UsageError, match="--allow-modelled"):
        export(turns, "trl-grpo", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    export(turns, "trl-grpo", tmp_path / "out", allow_modelled=True)
    assert load(tmp_path / "out")[0]["timing_kind"] == "modelled"
    assert "Modelled timings" in (tmp_path / "out" / "README.md").read_text()


def test_held_out_tasks_are_refused_even_when_modelled_timings_are_allowed(tmp_path):
    turns = [turn(1), turn(2, task="secret", split="held_out")]
    with pytest.raises(UsageError, match=r"held-out task secret(.|\n)*--allow-held-out"):
        export(turns, "trl-grpo", tmp_path / "out", allow_modelled=True)
    export(turns, "trl-grpo", tmp_path / "out", allow_held_out=True)
    rows = datasets.load_dataset(str(tmp_path / "out"))
    assert {split: list(found["split"]) for split, found in rows.items()} == {"train": ["train"], "test": ["held_out"]}
    assert "**Held-out tasks** (`--allow-held-out`): secret" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize("name", FORMATS)
def test_an_empty_selection_is_an_error_that_says_what_to_do(tmp_path, name):
    with pytest.raises(KernevoError, match="none of 0 turns") as caught:
        export([], name, tmp_path / "out", split_by="task")
    assert caught.value.hint
    assert not (tmp_path / "out").exists()


def test_an_unknown_format_names_the_nearest(tmp_path):
    with pytest.raises(UsageError, match="did you mean trl-grpo"):
        export([turn(1)], "trl-grp", tmp_path / "out")


def test_a_folder_in_use_is_left_alone_unless_forced(tmp_path):
    export([turn(1)], "trl-grpo", tmp_path)
    before = (tmp_path / "train.jsonl").read_bytes()
    with pytest.raises(UsageError, match="--force"):
        export([turn(1), turn(2)], "trl-grpo", tmp_path)
    assert (tmp_path / "train.jsonl").read_bytes() == before
    export([turn(1), turn(2)], "trl-grpo", tmp_path, force=True)
    assert len(load(tmp_path)) == 2


def test_a_file_in_place_of_the_folder_is_a_usage_error(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(UsageError, match="not a folder"):
        export([turn(1)], "trl-grpo", tmp_path / "out", force=True)


def test_a_folder_that_cannot_be_made_is_an_environment_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentUnusableError, match="cannot be written"):
        export([turn(1)], "trl-grpo", tmp_path / "file" / "out")


def test_special_characters_surrogates_and_large_sources_survive(tmp_path):
    large = "# " + "x" * 1_000_000 + "\n"
    turns = [turn(1, answer=NASTY, source=NASTY), turn(2, source=large), turn(3, answer="a\ud800b")]
    export(turns, "trl-grpo", tmp_path / "out")
    rows = load(tmp_path / "out")
    assert (rows[0]["answer"], rows[0]["source"]) == (NASTY, NASTY)
    assert rows[1]["source"] == large
    assert rows[2]["answer"] == "a\\ud800b"


def test_numbers_that_are_no_numbers_become_null(tmp_path):
    export([turn(1, speedup=float("nan"), coverage=float("inf"))], "trl-grpo", tmp_path / "out")
    [row] = load(tmp_path / "out")
    assert (row["speedup"], row["coverage"]) == (None, None)


def test_columns_keep_their_types_when_the_first_thousands_of_rows_are_null(tmp_path):
    rows = [failed_turn(number, source="x = 1\n" * 400) for number in range(6000)]
    export([*rows, turn(6000)], "trl-grpo", tmp_path / "out")
    loaded = load(tmp_path / "out")
    assert loaded.features["speedup"].dtype == "float64"
    assert loaded[6000]["speedup"] == 1.2


def test_the_card_counts_rows_rewards_and_says_where_they_come_from(tmp_path):
    export(mixed(), "trl-grpo", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "rows: 4, of 4 turns, of 4 turns in the runs" in card
    assert "measured (2), none (failed) (2)" in card
    assert "| wrong_value | 1 |" in card
    assert "triton 3.9.0" in card
    assert "4 of 4 rows have no sampling logprobs" in card
    bars = [line.split() for line in card.splitlines() if "…" in line]
    assert sum(int(bar[-1]) for bar in bars) == 4


def test_without_pyarrow_the_jsonl_is_still_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = export([turn(1)], "trl-grpo", tmp_path / "out")
    assert [path.name for path in done.files] == ["train.jsonl", "README.md"]
    [row] = [json.loads(line) for line in (tmp_path / "out" / "train.jsonl").read_text().splitlines()]
    assert row["candidate_id"] == "c000001"
    with pytest.raises(EnvironmentUnusableError, match=r"verl-sft: its trainer reads Parquet(.|\n)*kernevo\[train\]"):
        export([turn(1)], "verl-sft", tmp_path / "verl")


def test_the_card_says_what_was_left_out_and_why(tmp_path):
    turns = [*mixed(), turn(5, answer=turn(1).answer)]
    done = export(turns, "trl-sft", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert done.left_out == {
        "failed": 1,
        "a hack": 1,
        "gains less than 5% over its parent": 1,
        "the same answer to the same prompt": 1,
    }
    assert all(f"| {why} | {count} |" for why, count in done.left_out.items() if why in card)
    assert done.rows + sum(done.left_out.values()) == done.considered


def test_split_by_task_keeps_each_task_on_one_side(tmp_path):
    tasks = ["softmax", "matmul", "swiglu", "rms_norm", "attention"]
    turns = [turn(number, task=tasks[number % 5], group=f"g{number}") for number in range(1, 31)]
    done = export(turns, "trl-grpo", tmp_path / "out", split_by="task")
    rows = datasets.load_dataset(str(tmp_path / "out"))
    sides = {split: set(found["task"]) for split, found in rows.items()}
    assert len(sides["test"]) == 1
    assert sides["train"] | sides["test"] == set(tasks)
    assert not sides["train"] & sides["test"]
    assert done.splits == {"train": 24, "test": 6}


def test_split_by_task_tests_on_the_held_out_tasks_wherever_they_occur(tmp_path):
    turns = [turn(1), turn(2, task="swiglu", split="held_out"), turn(3, task="swiglu", run="s"), turn(4)]
    export(turns, "trl-grpo", tmp_path / "out", split_by="task", allow_held_out=True)
    rows = datasets.load_dataset(str(tmp_path / "out"))
    assert {split: list(found["task"]) for split, found in rows.items()} == {
        "train": ["softmax", "softmax"],
        "test": ["swiglu", "swiglu"],
    }


def test_split_by_task_needs_two_tasks(tmp_path):
    with pytest.raises(UsageError, match="needs two tasks, and the runs have softmax"):
        export([turn(1)], "trl-grpo", tmp_path / "out", split_by="task")
    assert not (tmp_path / "out").exists()


def test_an_export_over_one_with_a_test_split_leaves_no_stale_rows(tmp_path):
    held_out = turn(2, split="held_out")
    export([turn(1), held_out], "trl-grpo", tmp_path, allow_held_out=True)
    export([turn(1)], "trl-grpo", tmp_path, force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "train.jsonl", "train.parquet"]


def test_rewards_of_different_formulas_are_not_mixed(tmp_path):
    turns = [turn(1), turn(2, run="s", reward_type="profile")]
    with pytest.raises(UsageError, match=r"runs r and s are rewarded differently \(shaped, profile\)"):
        export(turns, "trl-grpo", tmp_path / "out")
    assert export(turns, "trl-sft", tmp_path / "out").rows == 2


def test_an_export_that_fails_halfway_leaves_nothing_behind(tmp_path, monkeypatch):
    def broken(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer.Writer, "add_file", broken)
    with pytest.raises(EnvironmentUnusableError, match="No space left on device"):
        export([turn(1)], "trl-grpo", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_memory_does_not_grow_with_prompts_and_sources(tmp_path):
    def peak(count):
        turns = (turn(number, source="x = 1\n" * 20_000, group=f"g{number}") for number in range(count))
        tracemalloc.start()
        try:
            export(turns, "trl-sft", tmp_path / str(count), options=Options(per_lineage=1))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(2)
    assert peak(200) < peak(20) + 2_000_000, "180 more sources of 120 kB each"


def test_importing_the_exporter_loads_no_heavy_library():
    code = (
        "import sys, policy.export, policy.trajectory;"
        "print([name for name in ('torch', 'triton', 'datasets', 'pyarrow', 'pandas') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
