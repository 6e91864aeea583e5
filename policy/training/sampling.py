"""Answers sampled from a model in training, by the sampler that campaigns use. Imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from policy.token_trie import Node
from policy.transformers_generate import Generator, Job, Sample, accepted_by

PER_SEQUENCE = 8
"""Answers that are written at once for each sequence of a training micro-batch, which needs far more memory."""


def sample(
    model: Any,
    prompts: Sequence[Sequence[int]],
    held: Sequence[Node | None],
    *,
    end: Sequence[int],
    tokens: int,
    temperature: float,
    at_once: int,
) -> list[Sample]:
    """One answer of `tokens` at most to each prompt (token ids), held to a list of answers or free, `at_once` of them
    together (fewer where the GPU's memory runs out). Seeded by torch's random state; an answer does not depend on
    what is sampled beside it.
    """
    seeds = torch.randint(2**62, (len(prompts),)).tolist()
    jobs = [Job(tuple(prompt), 1, tokens, seed, node) for prompt, seed, node in zip(prompts, seeds, held, strict=True)]
    generator = Generator(lambda: model, accepted_by(model), str(model.device), at_once)
    found = generator.run(jobs, temperature, None, 1.0, frozenset(end))
    return [one for (one,) in found]
