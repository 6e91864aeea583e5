"""A suite run walks many problems, skips what is done, resumes what was cut short, and counts failures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluator.errors import TaskError, UsageError
from evaluator.types import EvalStatus, Evaluation, Timing
from evo.campaign import Campaign
from evo.config import CampaignConfig
from evo.config_file import load_mapping
from evo.run import Run
from evo.suite import STATE, TABLE, Suite, file_name, problems
from evo.suite_table import Row, Speedup, speedups, table
from tests.evo import fakes
from tests.evo.cli_call import call
from tests.evo.test_cli_tasks import ANSWER, PROBLEM

TASKS = ["softmax", "cross_entropy", "layer_norm"]


def config(**suite):
    given = {"tasks": TASKS, **suite}
    return load_mapping({"suite": given, "budget": {"evaluations": 12}, "monitors": [], "search": {"offspring": 4}})


class Starts:
    """Campaigns with a fake judge; `cross_entropy` is a task at fault."""

    def __init__(self, interrupted=()):
        self.started, self.resumed, self.interrupted = [], [], set(interrupted)

    def start(self, settings: CampaignConfig, path: Path):
        self.started.append(settings.task)
        if settings.task == "cross_entropy":
            raise TaskError("cross_entropy: its reference fails")
        return self._made(Campaign(settings, path, **self._parts()), settings.task)

    def resume(self, path: Path):
        self.resumed.append(path.name)
        campaign = Campaign.resume(path, **self._parts())
        return self._made(campaign, path.name)

    def _parts(self):
        return {"evaluator": fakes.FakeEvaluator(), "policy": fakes.FakePolicy()}

    def _made(self, campaign, task):
        campaign.task = campaign.task.model_copy(update={"seed_source": fakes.SEED})
        if task in self.interrupted:
            self.interrupted.remove(task)
            campaign.interrupt.request()
        return campaign


def suite_of(path, starts, **suite):
    return Suite(config(**suite), path / "suite", starts.start, starts.resume)


def test_every_problem_gets_a_row_and_what_is_done_is_not_done_again(tmp_path):
    starts, lines = Starts(), []
    suite = suite_of(tmp_path, starts)
    suite.run(lines.append)
    assert starts.started == TASKS
    assert [suite.rows[task].state for task in TASKS] == ["correct", "refused", "correct"]
    assert lines[1] == "2 of 3: cross_entropy: refused: cross_entropy: its reference fails"
    assert (tmp_path / "suite" / "softmax" / "journal.jsonl").is_file()
    assert "2 of 3 correct; speedups are modelled" in (tmp_path / "suite" / TABLE).read_text()
    again = Starts()
    second = suite_of(tmp_path, again)
    second.run()
    assert again.started == ["cross_entropy"]
    assert second.table() == suite.table()


def test_a_problem_that_was_cut_short_is_resumed_and_then_the_others_follow(tmp_path):
    starts = Starts(interrupted=["softmax"])
    suite = suite_of(tmp_path, starts)
    suite.run()
    assert suite.interrupted
    assert suite.rows["softmax"].state == "interrupted"
    assert starts.started == ["softmax"]
    suite = suite_of(tmp_path, starts)
    suite.run()
    assert starts.resumed == ["softmax"]
    assert suite.rows["softmax"].state == "correct"
    assert suite.rows["softmax"].evaluations == 12
    assert suite.rows["layer_norm"].done


def test_time_for_all_of_them_counts_over_sessions_and_what_was_not_begun_is_a_failure(tmp_path):
    starts = Starts()
    suite = suite_of(tmp_path, starts, seconds=1e-9)
    suite.run()
    assert starts.started == ["softmax"]
    suite_of(tmp_path, starts, seconds=1e-9).run()
    assert starts.started == ["softmax"]
    assert suite.table().count("not begun") == 2
    assert "1 of 3 correct" in suite.table()
    suite_of(tmp_path, starts, seconds=1e9).run()
    assert starts.started == TASKS


def test_a_suite_can_start_from_inductor_s_code_and_a_refusal_is_the_problem_s(tmp_path, monkeypatch):
    def seed(task, target):
        if task.name == "matmul":
            raise TaskError("matmul: no first kernel from Inductor: libraries only")
        return fakes.SEED

    monkeypatch.setattr("evaluator.seeds.inductor.seed", seed)
    suite = suite_of(tmp_path, Starts(), tasks=["matmul", "softmax"], first_kernels="inductor")
    suite.run()
    assert suite.rows["matmul"].reason.endswith("libraries only")
    assert suite.rows["softmax"].state == "correct"
    assert load_run(suite.folder / "softmax") == fakes.SEED


def load_run(folder):
    run = Run.load(folder)
    return run.source(run.records()[0].candidate.source_sha).text


def test_a_folder_of_another_config_is_not_mixed_with_this_one(tmp_path):
    suite_of(tmp_path, Starts()).run()
    with pytest.raises(UsageError, match="another config"):
        suite_of(tmp_path, Starts(), tasks=["softmax"]).run()


def evaluation(**timing):
    first = Timing(kind="measured", median_ms=1.0, **timing)
    return Evaluation(source_sha="0" * 64, task="t", evaluator="gpu", status=EvalStatus.PASSED, timings={"w": first})


def test_speedups_over_the_baselines_that_were_only_screened_follow_from_the_one_beside_the_kernel():
    medians = {"eager": 4.0, "torch.compile": 2.0}
    timing = {"baseline": "torch.compile", "ratio": 1.5, "ratio_low": 1.4, "baseline_ms": 1.5, "baselines": medians}
    found = speedups(evaluation(**timing))
    assert found["torch.compile"] == Speedup(value=1.5, low=1.4)
    assert found["eager"].value == pytest.approx(3.0)
    assert found["eager"].low == pytest.approx(2.8)
    assert "max-autotune" not in found


def test_fast_at_p_needs_the_interval_and_failures_count_as_one():
    rows = [
        Row(task="a", state="correct", kind="measured", speedups={"eager": Speedup(value=4.0, low=3.9)}),
        Row(task="b", state="correct", kind="measured", speedups={"eager": Speedup(value=1.01, low=0.985)}),
        Row(task="c", state="correct", kind="measured", speedups={"eager": Speedup(value=1.0, low=0.99)}),
        Row(task="d", state="none correct", reason="wrong_value: 3 | 8"),
    ]
    text = table(rows)
    assert "| eager | 50% | 25% | 1.418 |" in text
    assert "3 \\| 8" in text


def test_problems_are_chosen_by_level_number_and_count(tmp_path):
    for level, number in [(1, 1), (1, 2), (1, 4), (2, 6), (3, 8)]:
        (tmp_path / f"level{level}").mkdir(exist_ok=True)
        (tmp_path / f"level{level}" / f"{number}_X.py").write_text("")
    given = f"kernelbench:{tmp_path}"
    even = config(tasks=[given, "softmax"], levels=[1, 2], numbers="even").suite
    places = [f"{given}/level1/2", f"{given}/level1/4", f"{given}/level2/6", "softmax"]
    assert problems(even) == places
    assert problems(even.model_copy(update={"most": 2})) == [places[0], places[2]]
    assert [file_name(place) for place in places] == ["level1_2", "level1_4", "level2_6", "softmax"]


@pytest.mark.parametrize("given", [{}, {"task": "softmax", "suite": {"tasks": ["softmax"]}}])
def test_a_config_names_either_a_task_or_a_suite(given):
    with pytest.raises(UsageError, match=r"a task (nor|and) a suite"):
        load_mapping({"budget": {"evaluations": 2}, **given})


def test_a_suite_of_kernelbench_problems_runs_from_the_command_line_without_a_gpu(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("level1").mkdir()
    Path("first").mkdir()
    Path("level1/2_Twice.py").write_text(PROBLEM)
    Path("level1/4_Other.py").write_text(PROBLEM)
    Path("first/level1_2.py").write_text(ANSWER)
    Path("kb.yaml").write_text(
        f"suite: {{tasks: ['kernelbench:{tmp_path}'], first_kernels: first}}\n"
        "evaluator: {timeout_s: 20, workers: 1, cache: false}\nbudget: {evaluations: 2}\nmonitors: []\n"
    )
    planned = call("run", "kb.yaml", "--dry-run")
    assert "level1/4" in planned.out
    outcome = call("run", "kb.yaml")
    assert outcome.code == 0, outcome.err
    assert f"| `kernelbench:{tmp_path}/level1/2` | correct |" in outcome.out
    assert "has no seed kernel" in outcome.out
    state = json.loads(Path("runs/kb", STATE).read_text())
    assert [row["state"] for row in state["rows"]] == ["correct", "refused"]
    assert json.loads(call("run", "kb.yaml", "--json").out)["rows"] == state["rows"]
