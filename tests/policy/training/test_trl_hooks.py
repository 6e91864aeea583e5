"""What this project relies on in TRL and transformers beside their documented interfaces: a change fails here."""

from __future__ import annotations

import inspect

import pytest

pytest.importorskip("trl", reason="needs the train extra")

from transformers import Trainer
from trl import GRPOConfig, GRPOTrainer


def parameters(function):
    return list(inspect.signature(function).parameters)


def test_the_private_methods_that_are_overridden_take_what_they_took():
    assert parameters(GRPOTrainer._generate_and_score_completions) == ["self", "inputs"]
    assert parameters(GRPOTrainer._prepare_inputs) == ["self", "generation_batch"]
    assert parameters(GRPOTrainer._get_per_token_logps_and_entropies)[:7] == [
        "self",
        "model",
        "input_ids",
        "attention_mask",
        "logits_to_keep",
        "batch_size",
        "compute_entropy",
    ]
    assert "rollout_func" in parameters(GRPOTrainer.__init__)


def test_the_loss_still_reads_what_is_replaced_in_a_batch():
    loss = inspect.getsource(GRPOTrainer._compute_loss)
    assert 'advantages = inputs["advantages"]' in loss
    assert 'inputs.get("old_per_token_logps")' in loss
    made = inspect.getsource(GRPOTrainer._generate_and_score_completions)
    for name in ("advantages", "prompt_mask", "completion_mask", "sampling_per_token_logps"):
        assert f'"{name}"' in made
    assert "self.rollout_func(prompts, self)" in inspect.getsource(GRPOTrainer._generate)


def test_dr_grpo_without_scaling_is_still_offered():
    source = inspect.getsource(GRPOTrainer)
    assert '"dr_grpo"' in source
    assert 'self.scale_rewards != "none"' in source
    assert {"loss_type", "scale_rewards", "num_generations", "max_completion_length"} <= set(parameters(GRPOConfig))


def test_a_checkpoints_state_is_still_written_last():
    saved = inspect.getsource(Trainer._save_checkpoint)
    parts = ["self.save_model(", "_save_optimizer_and_scheduler(", "_save_rng_state(", "self.state.save_to_json("]
    places = [saved.index(part) for part in parts]
    assert places == sorted(places)


def test_gradients_are_still_shown_before_the_optimizer_uses_them():
    source = inspect.getsource(Trainer)
    calls = ["on_pre_optimizer_step(", "self.optimizer.step()", "on_optimizer_step("]
    places = [source.index(call) for call in calls]
    assert places == sorted(places)
