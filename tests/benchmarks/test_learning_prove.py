"""The proof of learning runs all its arms, and says so when there is nothing to see."""

from __future__ import annotations

import json
import shutil

import pytest

pytest.importorskip("trl", reason="needs the packages of the extra train")

from benchmarks.learning import conclude, measure, pairs, prove, records, shown, warm_up
from benchmarks.learning.arms import Seed, Split
from evaluator.task import load_task
from evaluator.types import EvalStatus, Evaluation, KernelSource, Timing
from policy.training.judging import Judged
from policy.training.watching import Watch
from tests.policy.training import tiny

SEED = load_task("softmax").seed_source


class ByLength:
    """Passes everything of one task; the longer the source, the quicker the kernel."""

    def __init__(self, name):
        self.task = load_task(name)

    def evaluate(self, jobs):
        for job in jobs:
            ms = 1.0 / len(job.source.text)
            timings = {w.name: Timing(kind="measured", median_ms=ms, baseline_ms=2e-3) for w in self.task.workloads}
            yield (
                job,
                Evaluation(
                    source_sha=job.source.sha,
                    task=self.task.name,
                    evaluator="gpu",
                    status=EvalStatus.PASSED,
                    timings=timings,
                ),
            )


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "rows.jsonl"
    book = measure.Book(path, until=1e18)
    for name in ("softmax", "swiglu"):
        evaluator = ByLength(name)
        seed = KernelSource(text=evaluator.task.seed_source)
        book.judge(evaluator, [("", None, seed)])
        book.judge(evaluator, [(seed.sha, step, child) for step, child in pairs.every_child(evaluator.task, seed.text)])
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.make(tmp_path_factory.mktemp("tiny") / "model", context=16384)


def words(model, table, out, *more):
    given = ["--base", model, "--out", out, "--measured", table, "--training", "softmax", "--held-out", "swiglu"]
    given += ["--seeds", 0, "--answers", 2, "--sft-steps", 1, "--rl-steps", 1, "--rl-rate", 1e-3, "--group", 2]
    given += ["--prompts", 1, "--micro-batch", 2, "--answer-tokens", 128, "--context-tokens", 16384, *more]
    return [str(word) for word in given]


@pytest.fixture(scope="module")
def proved(model, table, tmp_path_factory):
    """A whole proof of one seed, in two calls: the first one's time is up at once."""
    out = tmp_path_factory.mktemp("proof") / "out"
    assert prove.main(words(model, table, out, "--seconds", 0)) == prove.UNFINISHED
    assert not (out / "0" / "sft").exists()
    assert prove.main(words(model, table, out)) == 0
    return out


def test_every_arm_is_trained_and_judged_on_pairs_it_never_saw(proved, tmp_path):
    code = conclude.main([str(proved), "--model", "tiny", "--result", str(tmp_path / "learning_proof.json")])
    found = json.loads((tmp_path / "learning_proof.json").read_text())
    assert code == (0 if all(found["claim"].values()) else 1)
    assert set(found["arms"]["held_out"]) == set(conclude.WORDS.values())
    (pairs_of,) = found["folds"]
    assert {pair.split("@")[0] for pair in pairs_of["training"]} == {"softmax"}
    assert {pair.split("@")[0] for pair in pairs_of["held_out"]} == {"swiglu"}
    assert found["arms"]["held_out"]["SFT + RL"]["valid"] == 1.0
    assert found["timing_kind"] == "measured"
    assert found["curves"]["SFT + RL"][0][0]["step"] == 1
    assert found["rl_steps"]["steps"] == 1
    assert sum(found["rl_steps"]["seconds"].values()) == pytest.approx(
        2 * found["rl_steps"]["seconds"]["step"], abs=0.01
    )
    assert 0 <= found["rl_steps"]["mismatch_mean_abs"] <= found["rl_steps"]["mismatch_max_abs"] < 1e-3
    assert "SFT + RL on shuffled rewards" in shown.sections(tmp_path, "figures")


def exchanged(proved, out):
    """The other fold, made of the first one's answers: what was held out was trained on."""
    shutil.copytree(proved, out)
    names = {"training": "held_out", "held_out": "training"}
    for path in (proved / "0").glob("*.json"):
        arm, _, split = path.stem.partition(".")
        if split in names:
            shutil.copy(path, out / "0" / f"{arm}.{names[split]}.json")
    return out


def test_two_folds_are_judged_together_each_pair_by_those_who_never_saw_it(proved, tmp_path):
    other = exchanged(proved, tmp_path / "other")
    both = conclude.conclude([proved, other], "tiny")
    parts = [conclude.conclude([folder], "tiny") for folder in (proved, other)]
    assert both["rl_minus_sft"]["pairs"] == sum(part["rl_minus_sft"]["pairs"] for part in parts)
    means = [part["arms"]["held_out"]["SFT"]["mean_reward"] for part in parts]
    assert min(means) <= both["arms"]["held_out"]["SFT"]["mean_reward"] <= max(means)
    assert both["arms"]["held_out"] != parts[0]["arms"]["held_out"]
    assert [len(rows) for rows in both["curves"].values()] == [2, 2, 2]


def test_folds_of_other_seeds_are_refused(proved, tmp_path, capsys):
    other = exchanged(proved, tmp_path / "other")
    (other / "0").rename(other / "1")
    with pytest.raises(SystemExit) as refused:
        conclude.main([str(proved), str(other), "--result", str(tmp_path / "r.json")])
    assert refused.value.code == 2
    assert "not of the same seeds" in capsys.readouterr().err


def test_the_second_fold_trains_on_what_the_first_one_holds_out(model, table, tmp_path):
    settings = [
        prove.settings_of(prove.arguments([*words(model, table, tmp_path / fold)[:6], "--fold", fold])) for fold in "12"
    ]
    assert settings[0].training == settings[1].held_out
    assert settings[0].held_out == settings[1].training
    assert not set(settings[0].training) & set(settings[0].held_out)


def test_the_warm_up_keeps_the_most_steps_with_half_the_variety_of_the_base():
    rows = [{"steps": steps, "different": share} for steps, share in ((0, 0.4), (3, 0.39), (6, 0.2), (12, 0.19))]
    assert warm_up.chosen(rows) == 6
    assert warm_up.chosen([{**row, "different": 0.4 if not row["steps"] else 0.1} for row in rows]) == 3


def test_variety_is_the_share_of_different_children_in_each_group():
    group = [Judged(0.1, program) for program in ("a", "a", "b", "c")]
    assert warm_up.different({"softmax@a": [group], "softmax@b": [group[:2] * 2]}, 4) == (0.75 + 0.25) / 2
    assert warm_up.different({"softmax@a": [group]}, 2) == (0.5 + 1.0) / 2


def test_the_warm_up_looks_at_training_tasks_alone_and_does_nothing_twice(model, table, tmp_path):
    given = [*words(model, table, tmp_path / "out"), "--steps", "1"]
    assert warm_up.main(given) == 0
    found = json.loads((tmp_path / "out" / "warm_up.json").read_text())
    assert [row["steps"] for row in found["rows"]] == [0, 1]
    assert found["chosen"] == 1
    assert not list((tmp_path / "out").rglob("*held_out*"))
    adapter = tmp_path / "out" / "1" / "sft" / "adapter_model.safetensors"
    before = adapter.stat().st_mtime_ns
    assert warm_up.main(given) == 0
    assert adapter.stat().st_mtime_ns == before


def test_what_is_done_is_not_done_again_and_what_is_lost_is(model, table, proved):
    adapter = proved / "0" / "rl" / "adapter_model.safetensors"
    lost, kept = proved / "0" / "rl.held_out.json", proved / "0" / "rl.training.json"
    before, times = lost.read_text(), (adapter.stat().st_mtime_ns, kept.stat().st_mtime_ns)
    lost.unlink()
    assert prove.main(words(model, table, proved)) == 0
    assert (adapter.stat().st_mtime_ns, kept.stat().st_mtime_ns) == times
    assert lost.read_text() == before  # the same random numbers, so the same answers


def test_a_killed_training_goes_on_from_its_checkpoint(model, table, tmp_path, monkeypatch):
    options = prove.arguments([*words(model, table, tmp_path / "out"), "--sft-steps", "7"])
    rows = records.read(table)
    seed = Seed(prove.settings_of(options), 0, tmp_path / "out" / "0", {"training": Split.of(["softmax"], rows)})
    logged = Watch.logged

    def killed(self, step, metrics):
        logged(self, step, metrics)
        if step == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr(Watch, "logged", killed)
    with pytest.raises(KeyboardInterrupt):
        seed.run("sft")
    monkeypatch.undo()
    assert seed.remaining()[0] == "sft"
    begun = (tmp_path / "out" / "0" / "sft" / "metrics.jsonl").read_text().splitlines()[:5]
    seed.run("sft")
    assert seed.remaining()[0] == "rl"
    lines = (tmp_path / "out" / "0" / "sft" / "metrics.jsonl").read_text().splitlines()
    assert lines[:5] == begun
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4, 5, 6, 7]


def test_other_settings_and_a_seed_that_is_not_done_are_refused(model, table, proved, tmp_path, capsys):
    with pytest.raises(SystemExit, match="begun with other settings: answers; give another --out"):
        prove.main([*words(model, table, proved), "--answers", "3"])
    shutil.copytree(proved, tmp_path / "out")
    (tmp_path / "out" / "0" / "sft.free.json").unlink()
    with pytest.raises(SystemExit) as refused:
        conclude.main([str(tmp_path / "out"), "--result", str(tmp_path / "r.json")])
    assert refused.value.code == 2
    assert "0/sft.free" in capsys.readouterr().err
    assert not (tmp_path / "r.json").exists()


def test_a_parent_with_a_child_that_nobody_measured_is_no_prompt(table, tmp_path, capsys):
    rows = records.read(table)
    whole = Split.of(["softmax"], rows)
    lost = next(row for row in rows if row.task == "softmax" and row.step is not None)
    partly = Split.of(["softmax"], [row for row in rows if row is not lost])
    assert len(whole.prompts) == 3
    assert "a parent is left out" in capsys.readouterr().err
    applies = [p.name for p in pairs.pairs(["softmax"]) if lost.source in [c for _, c in pairs.children(p, SEED)]]
    assert {pair.name for pair in pairs.pairs(["softmax"])} - {prompt.task for prompt in partly.prompts} == set(applies)


def judged(reward):
    return Judged(reward)


def test_a_difference_that_all_tasks_share_has_an_interval_above_zero_and_noise_has_not():
    names = [f"{task}@{n}" for task in "abcd" for n in range(3)]
    better = [{name: [[judged(0.5 + 0.01 * n)]] for n, name in enumerate(names)}] * 2
    worse = [{name: [[judged(0.3 + 0.01 * n)]] for n, name in enumerate(names)}] * 2
    assert conclude.difference(better, worse)["low"] > 0
    mixed = [{name: [[judged(0.3 + (0.2 if n % 2 else -0.2))]] for n, name in enumerate(names)}] * 2
    found = conclude.difference(mixed, worse)
    assert found["low"] < 0 < found["high"]


def test_shapes_of_one_task_are_no_independent_evidence():
    names = [f"{task}@{n}" for task in "abcd" for n in range(3)]
    one_task = [{name: [[judged(0.6 if name[0] == "a" else 0.3)]] for name in names}]
    worse = [{name: [[judged(0.3)]] for name in names}]
    found = conclude.difference(one_task, worse)
    assert found["low"] == 0
    assert found["by_pair"]["high"] < found["high"]


def test_a_gain_of_one_training_seed_alone_is_no_proof():
    names = [f"{task}@{n}" for task in "abcd" for n in range(3)]
    worse = [{name: [[judged(0.3)]] for name in names}] * 3
    lucky = [{name: [[judged(0.6)]] for name in names}, *worse[1:]]
    found = conclude.difference(lucky, worse)
    assert found["low"] == 0
    assert found["by_pair"]["low"] > 0


def test_failures_count_one_in_the_geometric_mean_and_unknown_rewards_as_failed():
    answers = [Judged(1.0, "a", True, False, 4.0), Judged(-0.1, "b", False, False, None)]
    assert conclude.figures([{"a@1": [answers]}])["geometric_mean"] == 2.0
    assert conclude.by_pair({"a@1": [[judged(None), judged(0.4)]]}) == {"a@1": 0.0}
