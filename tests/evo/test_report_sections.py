"""The report's header, tree, credit of models, training curves and cost."""

from __future__ import annotations

import json
import math
import shutil

import pytest

from evaluator.types import EvalStatus, StageRecord
from evo import events
from evo.interval import speedup_interval
from evo.journal import JournalError
from evo.report import data
from evo.report.figures import by_judging
from evo.report.lineage import branches
from evo.report.tree import tree_of
from evo.run import Run
from tests.evo.run_maker import RunMaker, failed, passed
from tests.evo.test_report import page


@pytest.fixture
def maker(tmp_path):
    return RunMaker(tmp_path / "run")


def measured(source, low=None, high=None, seconds=2.0):
    """A kernel that a GPU judged twice as fast as its baseline."""
    evaluation = passed(source, 2.0)
    timing = evaluation.timings["w"].model_copy(update={"kind": "measured", "ratio_low": low, "ratio_high": high})
    stages = (
        StageRecord(name="smoke", status=EvalStatus.PASSED, seconds=100.0),
        StageRecord(name="time", status=EvalStatus.PASSED, seconds=seconds),
    )
    return evaluation.model_copy(
        update={"timings": {"w": timing}, "evaluator": "gpu", "stages": stages, "target": "NVIDIA H200"}
    )


def words_of(run, tmp_path):
    return page(run, tmp_path)[1].words


def test_the_header_gives_the_interval_of_a_measured_speedup_and_the_gpu(maker, tmp_path):
    maker.add("x = 1\n", measured("x = 1\n", 1.9, 2.1))
    words = words_of(maker.load(), tmp_path)
    assert "2.000x measured for NVIDIA H200 over the baseline, 95 % interval [1.9" in words
    assert "hardware NVIDIA H200," in words
    assert "No interval" not in words


def test_the_header_says_why_there_is_no_interval(maker, tmp_path):
    maker.add("x = 1\n", passed("x = 1\n"))
    assert "No interval: the cost model is not calibrated" in words_of(maker.load(), tmp_path)


def test_an_interval_of_several_workloads_is_narrower_and_one_of_nonsense_is_none():
    one = measured("x = 1\n", 1.9, 2.1)
    low, high = speedup_interval(one)
    assert (low, high) == (pytest.approx(2 * math.sqrt(1.9 / 2.1)), pytest.approx(2 * math.sqrt(2.1 / 1.9)))
    four = one.model_copy(update={"timings": dict.fromkeys("abcd", one.timings["w"])})
    assert math.log(speedup_interval(four)[1] / 2) == pytest.approx(math.log(high / 2) / 2)
    nan = one.timings["w"].model_copy(update={"ratio_low": math.nan})
    assert speedup_interval(one.model_copy(update={"timings": {"w": nan}})) is None


def test_a_modelled_interval_counts_the_models_error_for_kernel_and_baseline():
    evaluation = passed("x = 1\n", 2.0)
    spread = evaluation.timings["w"].model_copy(update={"spread_low": 0.9, "spread_high": 1.1})
    low, high = speedup_interval(evaluation.model_copy(update={"timings": {"w": spread}}))
    assert low < 2 * 0.9
    assert 2 * 1.1 < high < 2 * 1.1**3


def test_several_policies_are_named_with_their_models(tmp_path):
    policies = [{"type": "rule"}, {"type": "openai", "model": "small<b>"}]
    maker = RunMaker(tmp_path / "run", policy=policies)
    maker.add("x = 1\n", passed("x = 1\n"))
    assert "policy rule, openai (small<b>)" in words_of(maker.load(), tmp_path)


def test_convergence_counts_the_seconds_of_gpus_and_not_those_before_them(maker):
    for number in range(3):
        maker.add(f"x = {number}\n", measured(f"x = {number}\n", seconds=2.0 + number))
    found = data.gather(maker.load())
    figure = by_judging(found, "measured")
    assert figure.layout["xaxis"]["title"]["text"] == "GPU seconds"
    assert figure.data[0]["x"] == [pytest.approx(2.0), pytest.approx(9.0)]
    assert (found.cost.gpu, found.cost.wall) == (pytest.approx(9.0), 0.0)


def test_verdicts_from_the_cache_cost_nothing(maker):
    judged = passed("x = 1\n").model_copy(update={"seconds": 3.0})
    maker.add("x = 1\n", judged)
    maker.add("x = 2\n", passed("x = 2\n").model_copy(update={"seconds": 3.0, "cached": True}))
    found = data.gather(maker.load())
    assert (found.cost.judging, found.points[-1].spent_s) == (3.0, 3.0)


def test_models_are_credited_apart_from_operators(maker, tmp_path):
    seed = maker.add("x = 1\n", passed("x = 1\n"))
    maker.add("x = 2\n", passed("x = 2\n", 2.0), parent=seed, policy="openai", policy_version="small", answer="{}")
    maker.add("x = 3\n", passed("x = 3\n", 1.5), parent=seed, policy="rule", policy_version="1", answer="{}")
    maker.add("x = 4\n", passed("x = 4\n", 3.0), parent=seed, operator="tune")
    run = maker.load()
    assert [(one.name, one.better) for one in data.gather(run).models] == [("openai small", 1), ("rule 1", 1)]
    assert "openai small" in words_of(run, tmp_path)


def test_the_tree_puts_the_best_lineage_on_one_row_and_every_child_right_of_its_parent(maker):
    seed = maker.add("x = 1\n", passed("x = 1\n"))
    middle = maker.add("x = 2\n", passed("x = 2\n", 2.0), parent=seed)
    best = maker.add("a = 3\n", passed("a = 3\n", 4.0), parent=middle)
    other = maker.add("if b:\n    c = 3\n", passed("if b:\n    c = 3\n", 3.0), parent=seed)
    run = maker.load()
    nodes = {node.record.id: node for node in tree_of(branches(run, run.elites(3))).nodes}
    assert nodes[seed].y == nodes[middle].y == nodes[best].y != nodes[other].y
    for node in nodes.values():
        if node.parent:
            parent = nodes[node.record.candidate.parent_ids[0]]
            assert node.parent == (parent.x, parent.y)
            assert parent.x < node.x
    assert len({(node.x, node.y) for node in nodes.values()}) == 4


def learned(name, generation, **more):
    return events.Learned(generation=generation, adapter=name, exit_code=0, seconds=50.0, took_s=20.0, **more)


def test_training_curves_run_on_from_adapter_to_adapter_and_say_what_came_of_each(maker, tmp_path):
    maker.add("x = 1\n", passed("x = 1\n"))
    for name, rewards in (("g0002", [0.1, 0.2]), ("g0004", [0.3, None])):
        folder = maker.dir.path / "adapters" / name
        folder.mkdir(parents=True)
        rows = [{"step": n, "mean_reward": value, "loss": 1.0} for n, value in enumerate(rewards, start=1)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 3, "tor')
    maker.say(events.LEARNED, learned("g0002", 2, kept=True, before=0.1, after=0.2))
    maker.say(events.LEARNED, learned("g0004", 4, kept=False))
    run = maker.load()
    _, found = page(run, tmp_path)
    [curve] = found.figures["rewards"]["data"]
    assert (curve["x"], curve["y"]) == ([1, 2, 3, 4], [0.1, 0.2, 0.3, None])
    words = found.words
    assert "in use from here on" in words
    assert "dropped: its probe was worse" in words
    assert data.gather(run).cost.training == 40.0


def test_a_training_whose_metrics_are_damaged_is_named(maker, tmp_path):
    maker.add("x = 1\n", passed("x = 1\n"))
    folder = maker.dir.path / "adapters" / "g0002"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("no json\n")
    words = words_of(maker.load(), tmp_path)
    assert "g0002" in words
    assert "its metrics.jsonl cannot be read" in words


def test_tokens_and_dollars_of_all_sessions_are_summed(maker, tmp_path):
    maker.add("x = 1\n", passed("x = 1\n"))
    for seconds in (5.0, 70.0):
        maker.say(events.SPENT, events.Spent(tokens=1500, dollars=0.25, seconds=seconds))
    words = words_of(maker.load(), tmp_path)
    assert "wall clock 70.0 s" in words
    assert "tokens 3,000" in words
    assert "dollars 0.5000" in words


def test_the_journal_the_config_and_the_kernels_are_all_that_a_report_needs(maker, tmp_path):
    seed = maker.add("x = 1\n", passed("x = 1\n"))
    maker.add("x = 2\n", passed("x = 2\n", 2.0), parent=seed)
    maker.add("x", failed("x", EvalStatus.SYNTAX_ERROR, "static"), parent=seed)
    bare = tmp_path / "bare"
    (bare / "kernels").mkdir(parents=True)
    for name in ("journal.jsonl", "config.resolved.json"):
        shutil.copy(maker.dir.path / name, bare / name)
    for kernel in maker.dir.kernels.glob("*.py"):
        shutil.copy(kernel, bare / "kernels")
    assert "2.000x modelled" in words_of(Run.load(bare), tmp_path)


def test_a_journal_of_another_version_says_which_kernevo_to_use(maker, tmp_path):
    class Newer(events.Spent):
        joules: float

    maker.add("x = 1\n", passed("x = 1\n"))
    maker.say(events.SPENT, Newer(tokens=1, dollars=0.0, seconds=1.0, joules=3.0))
    with pytest.raises(JournalError, match="joules") as caught:
        page(maker.load(), tmp_path)
    assert "use the Kernevo version that started the run" in str(caught.value)
