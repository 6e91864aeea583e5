"""A small fixed set of prompts that a model answers before and after a training. Imports torch when called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from policy.training.choices import Choices
from policy.training.data import Prompt
from policy.training.judging import Judge
from policy.training.rollouts import tokens_of
from policy.training.settings import TrainingSettings

SEED = 1_000_003
"""Of the answers, beside the training's own."""
FAILED = -0.4
"""What an answer counts that our own harness failed on: as one that cannot be read."""


def chosen(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    """`count` prompts, spread evenly over all that there are."""
    wanted = min(count, len(prompts))
    return [prompts[index * len(prompts) // wanted] for index in range(wanted)]


def mean_reward(
    settings: TrainingSettings, prompts: Sequence[Prompt], model: Any, tokenizer: Any, choices: Choices, judge: Judge
) -> float:
    """Mean reward of `settings.group` answers to each prompt; the same random numbers every time."""
    import torch

    from policy.training.sampling import PER_SEQUENCE, sample

    asked = [prompt for prompt in prompts for _ in range(settings.group)]
    training = model.training
    model.eval()
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed + SEED)
        answers = sample(
            model,
            [tokens_of(tokenizer, prompt) for prompt in asked],
            [choices.tree(prompt) for prompt in asked],
            end=[tokenizer.eos_token_id],
            tokens=settings.answer_tokens,
            temperature=settings.temperature,
            at_once=PER_SEQUENCE * settings.micro_batch,
        )
    model.train(training)
    texts = tokenizer.batch_decode([one.tokens for one in answers], skip_special_tokens=True)
    cut = [one.tokens[-1] != tokenizer.eos_token_id for one in answers]
    judged = judge.judge(list(zip(asked, texts, cut, strict=True)))
    return sum(FAILED if one.reward is None else one.reward for one in judged) / len(judged)
