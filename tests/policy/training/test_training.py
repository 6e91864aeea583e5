"""Whole trainings of a tiny model on the CPU, and how they end badly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the train extra")
pytest.importorskip("peft", reason="needs the train extra")

import torch

from evaluator.errors import EnvironmentUnusableError, KernevoError, UsageError
from evaluator.types import EvalStatus
from policy.training import manifest
from policy.training.base_model import load_model
from policy.training.checkpoints import last_checkpoint
from policy.training.data import Source
from policy.training.session import finetune
from policy.training.watching import NotFiniteError
from policy.types import Message
from tests.policy.training import driver, tiny, world

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(tiny.make(tmp_path_factory.mktemp("tiny") / "model"))


def train(model, out, *statuses, turns=None, resume=False, **changes):
    sources = [world.source(**(turns or {}))]
    judges = {"softmax": world.LengthJudge(*statuses)}
    return finetune(world.settings(base=model, **changes), sources, judges, out, resume=resume)


def rows(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def weights(folder):
    from safetensors.torch import load_file

    return load_file(Path(folder) / manifest.WEIGHTS)


@pytest.mark.parametrize("method", ["sft", "dpo", "grpo", "trloo"])
def test_every_method_makes_an_adapter_that_loads_and_says_where_it_comes_from(model, tmp_path, method):
    out = tmp_path / "out"
    made = train(model, out, method=method)
    assert manifest.read(out) == made
    assert (made.method, made.base, made.runs, made.turns) == (method, model, ("r",), 6)
    assert made.version == manifest.version_of(out)
    assert set(made.libraries) == set(manifest.LIBRARIES)
    loaded = load_model(model, str(out))
    assert any(value.detach().any() for name, value in loaded.named_parameters() if "lora_B" in name)
    found = rows(out)
    assert [row["step"] for row in found] == [1, 2]
    assert list((out / "tensorboard").iterdir())
    parts = [found[-1][f"seconds/{name}"] for name in ("generation", "evaluation", "training", "overhead")]
    assert sum(parts) == pytest.approx(found[-1]["seconds/step"])


def test_sampling_and_training_agree_on_every_logprob_and_the_step_says_what_it_saw(model, tmp_path):
    train(model, tmp_path / "out", method="grpo")
    for row in rows(tmp_path / "out"):
        assert row["mismatch/max_abs"] < 1e-4
        assert row["valid"] == row["correct"] == 1
        assert row["entropy"] > 0
    assert rows(tmp_path / "out")[0]["seconds/generation"] > 0


def test_reinforcement_makes_better_answers_likelier(model, tmp_path):
    given = {"method": "trloo", "steps": 6, "group": 8, "learning_rate": 0.03, "micro_batch": 8, "probe": 1}
    judges = {"softmax": world.SmallSteps()}
    made = finetune(world.settings(base=model, **given), [world.source()], judges, tmp_path / "out")
    assert made.probe is not None
    assert made.probe.after > made.probe.before


def test_rewards_that_are_shuffled_within_groups_teach_next_to_nothing(model, tmp_path):
    given = {"method": "trloo", "steps": 8, "group": 32, "learning_rate": 0.003, "micro_batch": 32, "probe": 1}
    gains = {False: [], True: []}
    for shuffled, found in gains.items():
        for seed in range(3):
            settings = world.settings(base=model, seed=seed, shuffled=shuffled, **given)
            out = tmp_path / f"{shuffled}{seed}"
            probe = finetune(settings, [world.source()], {"softmax": world.SmallSteps()}, out).probe
            found.append(probe.after - probe.before)
    assert min(gains[False]) > 0.2
    assert sum(gains[True]) < sum(gains[False]) / 2


def test_an_adapter_is_gone_on_from_and_named_as_parent(model, tmp_path):
    first = train(model, tmp_path / "a", method="sft")
    second = train(model, tmp_path / "b", method="grpo", adapter=str(tmp_path / "a"))
    third = train(model, tmp_path / "c", method="dpo", adapter=str(tmp_path / "b"))
    assert third.parents == (first.version, second.version)
    before, after = weights(tmp_path / "a"), weights(tmp_path / "b")
    assert before.keys() == after.keys()


def test_recorded_answers_are_trained_on_without_a_judge(model, tmp_path):
    from policy.training.base_model import load_tokenizer
    from policy.training.rollouts import tokens_of

    tokenizer = load_tokenizer(model)
    turns = []
    for turn in world.turns():
        ids = (*tokenizer.encode(turn.answer), tokenizer.eos_token_id)
        given = {"prompt_token_ids": tuple(tokens_of(tokenizer, turn)), "answer_token_ids": ids}
        turns.append(turn.model_copy(update={**given, "logprobs": (-5.9,) * len(ids)}))
    settings = world.settings(base=model, method="trloo", answers="recorded", group=3)
    source = world.source().__class__("r", tuple(turns), "shaped")
    finetune(settings, [source], {}, tmp_path / "out")
    assert rows(tmp_path / "out")[0]["mismatch/mean_abs"] > 0


def test_a_tokenizer_without_a_chat_template_is_refused(tmp_path):
    plain = str(tiny.make(tmp_path / "plain", template=None))
    with pytest.raises(UsageError, match="no chat template") as refused:
        train(plain, tmp_path / "out", method="sft")
    assert "\n" not in refused.value.message


def test_groups_that_all_earn_the_same_leave_the_weights_and_ring(model, tmp_path):
    made = train(model, tmp_path / "out", EvalStatus.WRONG_VALUE, method="grpo")
    assert all(not float(value.abs().sum()) for name, value in weights(tmp_path / "out").items() if "lora_B" in name)
    assert rows(tmp_path / "out")[-1]["alarms"] == ["zero_variance"]
    assert any(words.startswith("step 1: 100% of the groups earn one reward") for words in made.alarms)


def test_a_batch_that_our_own_harness_failed_on_ends_the_training(model, tmp_path):
    with pytest.raises(KernevoError, match="the evaluator failed on every answer"):
        train(model, tmp_path / "out", EvalStatus.HARNESS_ERROR, method="grpo")


@pytest.mark.parametrize("method", ["sft", "grpo"])
def test_a_loss_that_is_no_number_ends_the_training_and_names_the_last_good_checkpoint(
    model, tmp_path, monkeypatch, method
):
    from policy.training.reinforcement import EvolutionTrainer
    from policy.training.supervised import WatchedSFT

    kind = WatchedSFT if method == "sft" else EvolutionTrainer
    real = kind.compute_loss

    def broken(self, *args, **kwargs):
        loss = real(self, *args, **kwargs)
        return loss * float("nan") if self.state.global_step == 2 else loss

    monkeypatch.setattr(kind, "compute_loss", broken)
    out = tmp_path / "out"
    with pytest.raises(NotFiniteError, match=r"the loss of step 3 .*checkpoint-2 is the last good") as stopped:
        train(model, out, method=method, steps=4)
    assert "\n" not in stopped.value.message
    kept = weights(last_checkpoint(out / "checkpoints"))
    assert all(bool(torch.isfinite(value).all()) for value in kept.values())
    assert not (out / manifest.NAME).exists()


def test_a_gradient_that_is_no_number_never_reaches_the_weights(model, tmp_path, monkeypatch):
    from policy.training.supervised import WatchedSFT

    real = WatchedSFT.training_step

    def broken(self, model, *args, **kwargs):
        loss = real(self, model, *args, **kwargs)
        next(one for one in model.parameters() if one.grad is not None).grad[0] = float("inf")
        return loss

    monkeypatch.setattr(WatchedSFT, "training_step", broken)
    with pytest.raises(NotFiniteError, match="a gradient of step 1"):
        train(model, tmp_path / "out", method="sft")


def test_running_out_of_memory_halves_the_micro_batch_and_keeps_the_step(model, tmp_path, monkeypatch):
    from policy.training.reinforcement import EvolutionTrainer

    real, seen = EvolutionTrainer.compute_loss, []

    def small(self, model, inputs, *args, **kwargs):
        seen.append(len(inputs["completion_ids"]))
        if seen[-1] > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, model, inputs, *args, **kwargs)

    monkeypatch.setattr(EvolutionTrainer, "compute_loss", small)
    made = train(model, tmp_path / "out", method="grpo", group=4, micro_batch=4)
    assert made.out_of_memory == 2
    assert seen == [4, 2, *[1] * 8]
    assert [row["step"] for row in rows(tmp_path / "out")] == [1, 2]


def test_one_sequence_that_does_not_fit_ends_the_training(model, tmp_path, monkeypatch):
    from policy.training.supervised import WatchedSFT

    def never(self, *args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(WatchedSFT, "compute_loss", never)
    with pytest.raises(EnvironmentUnusableError, match="too small for one sequence"):
        train(model, tmp_path / "out", method="sft")


def test_other_errors_are_not_taken_for_missing_memory(model, tmp_path, monkeypatch):
    from policy.training.supervised import WatchedSFT

    def wrong(self, *args, **kwargs):
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(WatchedSFT, "compute_loss", wrong)
    with pytest.raises(RuntimeError, match="shapes differ"):
        train(model, tmp_path / "out", method="sft")


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("adapter_config.json", "{", "the adapter does not load"),
        (manifest.WEIGHTS, "rubbish", "the adapter does not load"),
        (manifest.NAME, "{}", "not readable"),
    ],
)
def test_an_adapter_that_does_not_load_is_refused_in_one_line(model, tmp_path, name, data, words):
    train(model, tmp_path / "a", method="sft", steps=1)
    (tmp_path / "a" / name).write_text(data)
    with pytest.raises(UsageError, match=words) as refused:
        train(model, tmp_path / "b", method="sft", adapter=str(tmp_path / "a"))
    assert "\n" not in refused.value.message


def test_an_adapter_of_another_model_and_a_folder_without_one_are_refused(model, tmp_path):
    other = str(tiny.make(tmp_path / "other"))
    train(other, tmp_path / "a", method="sft", steps=1)
    with pytest.raises(UsageError, match=r"an adapter of .*other"):
        train(model, tmp_path / "b", method="sft", adapter=str(tmp_path / "a"))
    with pytest.raises(UsageError, match="no adapter_config"):
        train(model, tmp_path / "c", method="sft", adapter=model)


def test_a_folder_in_use_is_not_overwritten_and_other_settings_do_not_resume(model, tmp_path):
    made = train(model, tmp_path / "out", method="sft")
    with pytest.raises(UsageError, match="not empty"):
        train(model, tmp_path / "out", method="sft")
    with pytest.raises(UsageError, match="begun with other settings: seed"):
        train(model, tmp_path / "out", method="sft", seed=1, resume=True)
    assert train(model, tmp_path / "out", method="sft", resume=True) == made


def test_prompts_that_leave_no_room_for_an_answer_are_named(model, tmp_path):
    with pytest.raises(KernevoError, match="none of 1 prompts leaves room"):
        train(model, tmp_path / "out", method="grpo", context_tokens=16, answer_tokens=16)


@pytest.mark.parametrize("method", ["sft", "dpo"])
def test_rows_that_are_too_long_to_hold_their_answer_are_named(model, tmp_path, method):
    with pytest.raises(KernevoError, match=r"none of \d+ rows fits: all have more than 16 tokens"):
        train(model, tmp_path / "out", method=method, context_tokens=16)


def test_only_rows_that_are_too_long_are_left_out(model, tmp_path):
    turns = world.source().turns
    long = [turn.model_copy(update={"messages": (Message(role="user", content="x " * 9000),)}) for turn in turns]
    short, both = world.source(), Source("r", (*turns, *long), "shaped")
    made = [finetune(driver.settings(model), [one], {}, tmp_path / str(len(one.turns))) for one in (short, both)]
    assert made[1].turns == 2 * made[0].turns
    assert made[1].rows == made[0].rows


def test_a_killed_training_resumes_and_ends_where_it_would_have_ended(model, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finetune(driver.settings(model), [world.source()], {}, whole)
    command = [sys.executable, "-m", "tests.policy.training.driver", model, str(killed)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    ) as process:
        lines = iter(process.stdout.readline, "")
        assert "saved 1\n" in lines
        process.stdin.write("\n")
        process.stdin.flush()
        assert "saved 2\n" in lines
        process.kill()
    # A kill may also come while a checkpoint is written.
    (killed / "checkpoints" / "checkpoint-3").mkdir()
    finetune(driver.settings(model), [world.source()], {}, killed, resume=True)
    assert [row["step"] for row in rows(killed)] == [1, 2, 3, 4]
    for name, value in weights(whole).items():
        assert torch.allclose(value, weights(killed)[name], atol=1e-6), name
