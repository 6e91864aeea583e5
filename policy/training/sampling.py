"""Answers sampled from a model, along trees of tokens where there are some. Imports torch and transformers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from policy.token_trie import Node
from policy.training.choices import Tree


@dataclass(frozen=True)
class Sampled:
    """One answer."""

    tokens: list[int]
    """Its last token included, which ends it unless it was cut off."""
    logprobs: list[float]
    """Of each token, as it was sampled."""


class AlongTrees(LogitsProcessor):  # type: ignore[misc]  # transformers is not typed for us
    """Forbids every token that leaves a row's tree; rows without a tree are free."""

    def __init__(self, trees: Sequence[Tree | None], prompt_length: int) -> None:
        self._trees, self._start = trees, prompt_length
        self._nodes: list[Node | None] = [None if tree is None else tree.root for tree in trees]
        self._seen = prompt_length

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Called once for each token, so that a row's place in its tree is one step further each time."""
        if input_ids.shape[1] > self._seen:
            pairs = zip(self._nodes, input_ids[:, -1].tolist(), strict=True)
            self._nodes = [None if node is None else node.following.get(token) for node, token in pairs]
        self._seen = input_ids.shape[1]
        for row, (tree, node) in enumerate(zip(self._trees, self._nodes, strict=True)):
            if tree is not None:
                restrict(scores[row], tree.after(node))
        return scores


def restrict(scores: torch.Tensor, allowed: Sequence[int]) -> None:
    """Make every token but `allowed` impossible, in place."""
    index = torch.tensor(allowed, device=scores.device)
    kept = scores[index]
    scores.fill_(-torch.inf)
    scores[index] = kept


def sample(
    model: Any,
    prompts: Sequence[Sequence[int]],
    trees: Sequence[Tree | None],
    *,
    end: Sequence[int],
    pad: int,
    tokens: int,
    temperature: float,
    at_once: int,
) -> list[Sampled]:
    """One answer to each prompt (token ids), `at_once` of them together. Uses torch's random state."""
    found: list[Sampled] = []
    for start in range(0, len(prompts), at_once):
        some = slice(start, start + at_once)
        found += _batch(model, prompts[some], trees[some], end, pad, tokens, temperature)
    return found


def _batch(
    model: Any,
    prompts: Sequence[Sequence[int]],
    trees: Sequence[Tree | None],
    end: Sequence[int],
    pad: int,
    tokens: int,
    temperature: float,
) -> list[Sampled]:
    longest = max(map(len, prompts))
    ids = torch.full((len(prompts), longest), pad)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    config = GenerationConfig(
        max_new_tokens=tokens,
        do_sample=True,
        temperature=temperature,
        top_k=0,
        top_p=1.0,
        repetition_penalty=1.0,
        eos_token_id=list(end),
        pad_token_id=pad,
        return_dict_in_generate=True,
        output_scores=True,
    )
    with torch.no_grad():
        output = model.generate(
            input_ids=ids.to(model.device),
            attention_mask=mask.to(model.device),
            generation_config=config,
            logits_processor=LogitsProcessorList([AlongTrees(trees, longest)]),
        )
    answers = output.sequences[:, longest:]
    logprobs = [
        scores.float().log_softmax(-1).gather(1, answers[:, place, None])[:, 0]
        for place, scores in enumerate(output.scores)
    ]
    table = torch.stack(logprobs, dim=1).tolist()
    return [_cut(row, logs, set(end)) for row, logs in zip(answers.tolist(), table, strict=True)]


def _cut(tokens: list[int], logprobs: list[float], end: set[int]) -> Sampled:
    """Without the padding behind the token that ends the answer."""
    length = next((place + 1 for place, token in enumerate(tokens) if token in end), len(tokens))
    return Sampled(tokens[:length], logprobs[:length])
