from __future__ import annotations

import pytest

pytest.importorskip("trl", reason="needs the train extra")

import torch

from policy.token_trie import trie
from policy.training.choices import Choices
from policy.training.reinforcement import allowed_tokens
from policy.training.sampling import sample
from tests.policy.training import tiny, world


@pytest.fixture(scope="module")
def model_and_tokenizer(tmp_path_factory):
    from policy.training.base_model import load_model, load_tokenizer

    folder = str(tiny.make(tmp_path_factory.mktemp("model")))
    return load_model(folder, None).eval(), load_tokenizer(folder)


def tree_of(sequences, end):
    return trie((("", tokens) for tokens in sequences), end)


def asked(model, tokenizer, trees, **changes):
    torch.manual_seed(1)
    given = {"end": [tokenizer.eos_token_id], "tokens": 200, "temperature": 1.0}
    prompts = [tokenizer.encode("make it fast"), tokenizer.encode("faster")]
    return prompts, sample(model, prompts, trees, **{**given, "at_once": 2, **changes})


def test_every_sampled_answer_is_one_of_those_that_were_listed(model_and_tokenizer):
    model, tokenizer = model_and_tokenizer
    choices = Choices({"softmax": world.TASK}, tokenizer.encode, tokenizer.eos_token_id)
    _, found = asked(model, tokenizer, [choices.tree(world.PROMPT)] * 2)
    texts = tokenizer.batch_decode([one.tokens for one in found], skip_special_tokens=True)
    assert set(texts) <= set(world.answers())
    assert all(one.tokens[-1] == tokenizer.eos_token_id for one in found)


def test_the_logprob_of_a_forced_token_is_zero_and_of_a_choice_its_share(model_and_tokenizer):
    model, tokenizer = model_and_tokenizer
    tree = tree_of([[10, 20], [10, 30]], tokenizer.eos_token_id)
    prompts, found = asked(model, tokenizer, [tree, tree])
    for prompt, one in zip(prompts, found, strict=True):
        assert one.tokens[0] == 10
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*prompt, 10]])).logits[0, -1]
        share = torch.log_softmax(logits[[20, 30]], 0)[[20, 30].index(one.tokens[1])]
        assert one.logprobs == pytest.approx([0, share.item(), 0], abs=1e-5)


def test_a_row_without_a_tree_is_free_beside_one_with_a_tree(model_and_tokenizer):
    model, tokenizer = model_and_tokenizer
    tree = tree_of([[10]], tokenizer.eos_token_id)
    _, (held, free) = asked(model, tokenizer, [tree, None], tokens=8)
    assert held.tokens == [10, tokenizer.eos_token_id]
    assert len(free.tokens) == 8 or free.tokens[-1] == tokenizer.eos_token_id
    assert free.tokens != held.tokens


def test_the_same_seed_samples_the_same_in_smaller_batches_of_equal_logprobs(model_and_tokenizer):
    model, tokenizer = model_and_tokenizer
    tree = tree_of([[10, 20]], tokenizer.eos_token_id)
    _, together = asked(model, tokenizer, [tree, tree])
    _, alone = asked(model, tokenizer, [tree, tree], at_once=1)
    assert [one.tokens for one in together] == [one.tokens for one in alone]
    for one, other in zip(together, alone, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_training_allows_what_sampling_allowed_and_everything_behind_the_end():
    tree = tree_of([[1, 2], [1, 3]], 0)
    answers = torch.tensor([[1, 3, 0, 9], [4, 4, 4, 4]])
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    allowed = allowed_tokens(answers, mask, [tree, None], 5)
    assert [row.nonzero().flatten().tolist() for row in allowed[0]] == [[1], [2, 3], [0], [0, 1, 2, 3, 4]]
    assert allowed[1].all()
