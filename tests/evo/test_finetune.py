"""The whole pipeline on the CPU: a campaign, SFT on its elites, reinforcement from there, an adapter that loads."""

from __future__ import annotations

import json

import pytest

from tests.evo.cli_call import call
from tests.policy.training import tiny

pytest.importorskip("trl", reason="needs the train extra")
pytest.importorskip("peft", reason="needs the train extra")


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A finished run of the rule policy, and a model whose tokenizer knows its prompts."""
    folder = tmp_path_factory.mktemp("pipeline")
    (folder / "my.yaml").write_text(
        f"task: softmax\nseed: 3\nruns_dir: {folder}\nbudget: {{evaluations: 12}}\n"
        "search: {population: 6, offspring: 5, tuning: {share: 0.0}}\n"
        f"evaluator: {{type: cpu, cache_dir: {folder / 'cache'}}}\nmonitors: [jsonl]\n"
    )
    done = call("run", folder / "my.yaml", "--name", "run")
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in (folder / "run" / "trajectories.jsonl").read_text().splitlines()]
    texts = [message["content"] for row in rows for message in row["messages"]]
    tiny.make(folder / "model", corpus=texts, words=2000)
    return folder


def finetune(folder, method, *more):
    options = ["--base", folder / "model", "--steps", 2, "--group", 2, "--prompts", 2, "--micro-batch", 2, "--json"]
    return call("finetune", folder / "run", "--method", method, *options, "--learning-rate", 1e-3, *more)


def test_modelled_timings_are_refused_unless_they_are_wanted(workplace):
    refused = finetune(workplace, "sft", "--out", workplace / "refused")
    assert refused.code == 2
    assert "--allow-modelled" in refused.err
    assert not (workplace / "refused" / "manifest.json").exists()


def test_a_campaigns_trajectories_become_an_adapter_by_sft_and_a_better_informed_one_by_grpo(workplace):
    sft = finetune(workplace, "sft", "--out", workplace / "sft", "--allow-modelled")
    assert sft.code == 0, sft.err
    first = json.loads(sft.out)
    assert first["runs"] == ["run"]
    grpo = finetune(workplace, "grpo", "--out", workplace / "rl", "--adapter", workplace / "sft", "--allow-modelled")
    assert grpo.code == 0, grpo.err
    second = json.loads(grpo.out)
    assert second["parents"] == [first["version"]]
    assert second["metrics"]["step"] == 2
    assert second["metrics"]["valid"] == 1
    assert "step 2: loss" in grpo.err

    from policy.training.base_model import load_model

    assert load_model(str(workplace / "model"), str(workplace / "rl")).peft_config


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--method", "ppo"], "--method"),
        (["--method", "sft", "--answers", "old"], "--answers"),
        (["--method", "sft", "--learning-rate", "0"], "--learning-rate"),
    ],
)
def test_a_wrong_option_is_named(workplace, options, words):
    done = call("finetune", workplace / "run", "--base", "m", "--out", workplace / "x", *options)
    assert done.code == 2
    assert words in done.err
