"""Answers that share the reading of their prompt get the logits and the gradient they would get alone."""

from __future__ import annotations

import pytest

pytest.importorskip("peft", reason="needs the packages of the extra train")

import torch

from policy.training.base_model import load_model, lora
from policy.training.shared_prompts import answer_logits
from tests.policy.training import tiny

PROMPT, KEEP = 12, 8


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from peft import get_peft_model

    torch.manual_seed(0)
    made = get_peft_model(
        load_model(str(tiny.make(tmp_path_factory.mktemp("tiny") / "model")), None).cpu().float(), lora(4)
    )
    for name, weight in made.named_parameters():
        if "lora_B" in name:  # zero at first, so that nothing would reach lora_A
            torch.nn.init.normal_(weight, std=0.2)
    return made.train()


def batch(owners, short=()):
    """Rows whose prompts are equal where `owners` are; `short` rows' prompts have four tokens less."""
    torch.manual_seed(1)
    prompts = torch.randint(5, 200, (max(owners) + 1, PROMPT))
    ids = torch.cat([prompts[list(owners)], torch.randint(5, 200, (len(owners), KEEP))], dim=1)
    mask = torch.ones_like(ids)
    for row in short:
        mask[row, :4] = 0
    mask[0, -3:] = 0  # an answer that ended early
    return ids, mask


def results(model, ids, mask, *, share, keep=KEEP):
    """Logits at real answer tokens, and the gradient of a weighted sum of their log-probabilities."""
    model.zero_grad()
    logits = answer_logits(model, ids, mask, keep, share=share)
    real = mask[:, -keep:, None].to(logits)
    torch.manual_seed(2)
    (torch.log_softmax(logits, -1) * torch.randn(logits.shape) * real).sum().backward()
    return (logits * real).detach(), {name: one.grad for name, one in model.named_parameters() if one.grad is not None}


@pytest.mark.parametrize(
    ("owners", "short"),
    [((0, 0, 0, 0), ()), ((0, 1, 0, 1, 2), (1, 3)), ((0, 1, 2), ()), ((0,), ())],
    ids=["one prompt", "groups mixed up, of two lengths", "nothing to share", "one row"],
)
def test_logits_and_gradients_are_those_of_rows_read_alone(model, owners, short):
    ids, mask = batch(owners, short)
    alone, gradients = results(model, ids, mask, share=False)
    shared, found = results(model, ids, mask, share=True)
    torch.testing.assert_close(shared, alone, rtol=1e-4, atol=1e-5)
    assert found.keys() == gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-4 * float(gradient.abs().max()))


def test_answers_of_one_token_need_no_second_reading(model):
    ids, mask = batch((0, 0, 1))
    mask[:] = 1
    alone, _ = results(model, ids, mask, share=False, keep=1)
    shared, _ = results(model, ids, mask, share=True, keep=1)
    torch.testing.assert_close(shared, alone, rtol=1e-4, atol=1e-5)


def test_equal_tokens_behind_other_padding_are_another_prompt(model):
    ids, mask = batch((0, 0), short=(1,))
    alone, _ = results(model, ids, mask, share=False)
    shared, _ = results(model, ids, mask, share=True)
    torch.testing.assert_close(shared, alone, rtol=1e-4, atol=1e-5)


def test_each_prompt_is_read_once(model, monkeypatch):
    read = []
    forward = model.forward
    monkeypatch.setattr(
        model, "forward", lambda **given: (read.append(given["input_ids"].numel()), forward(**given))[1]
    )
    ids, mask = batch((0, 1, 0, 1, 0, 1))
    answer_logits(model, ids, mask, KEEP)
    assert read == [2 * PROMPT, 6 * (KEEP - 1)]


@pytest.mark.parametrize("kind", ["absolute positions", "a window shorter than the prompt"])
def test_it_holds_for_models_that_place_or_see_tokens_differently(kind):
    from transformers import AutoModelForCausalLM, GPT2Config, MistralConfig

    shared = {"vocab_size": 200, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    quiet = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
    config = {
        "absolute positions": lambda: GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=64, **quiet, **shared),
        "a window shorter than the prompt": lambda: MistralConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            sliding_window=PROMPT // 2,
            **shared,
        ),
    }[kind]()
    torch.manual_seed(0)
    other = AutoModelForCausalLM.from_config(config).train()
    ids, mask = batch((0, 1, 0, 1, 1), short=(1, 3, 4))
    alone, gradients = results(other, ids, mask, share=False)
    shared_logits, found = results(other, ids, mask, share=True)
    torch.testing.assert_close(shared_logits, alone, rtol=1e-4, atol=1e-5)
    for name, gradient in gradients.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-4 * float(gradient.abs().max()))
