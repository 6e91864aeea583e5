"""Logits of answers where answers to one prompt share its reading, forward and backward. Imports torch.

A group asks one prompt many times, and prompts are far longer than structured answers; trainers that read the prompt
anew for each row spend nearly all of their time there. The gradient is the same: it reaches the prompt through the
keys and values that the rows share. (Prefix sharing of inference servers, for training.)
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch


def answer_logits(model: Any, ids: torch.Tensor, mask: torch.Tensor, keep: int, *, share: bool = True) -> torch.Tensor:
    """(rows, keep, vocabulary): what predicts each of the last `keep` tokens of `ids`, shape (rows, tokens).

    Prompts are padded at their left. Every row is read by itself without `share` (a model that computes activations
    twice to save memory keeps no keys and values), and where no two rows have one prompt.
    """
    chosen, owners = _distinct(ids[:, :-keep].tolist(), mask[:, :-keep].tolist())
    if not share or len(chosen) == len(owners):
        output = model(input_ids=ids, attention_mask=mask, logits_to_keep=keep + 1, use_cache=False)
        return output.logits[:, :-1]  # type: ignore[no-any-return]
    rows, places = (torch.tensor(one, device=ids.device) for one in (chosen, owners))
    read = model(input_ids=ids[rows, :-keep], attention_mask=mask[rows, :-keep], logits_to_keep=1, use_cache=True)
    first = read.logits[places, -1:]
    if keep == 1:
        return first  # type: ignore[no-any-return]
    name = cache_name(model)
    cache = getattr(read, name)
    cache.batch_select_indices(places)
    rest = model(input_ids=ids[:, -keep:-1], attention_mask=mask[:, :-1], use_cache=True, **{name: cache})
    return torch.cat([first, rest.logits], dim=1)


def cache_name(model: Any) -> str:
    """What the model calls its keys and values; it changed within version 5 of transformers."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return "cache" if "cache" in inspect.signature(type(base).forward).parameters else "past_key_values"


def _distinct(prompts: Sequence[Sequence[int]], masks: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """The first row with each prompt, and for each row the place of its prompt among those."""
    places: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    chosen: list[int] = []
    owners: list[int] = []
    for row, (tokens, real) in enumerate(zip(prompts, masks, strict=True)):
        key = (tuple(tokens), tuple(real))
        if key not in places:
            places[key] = len(chosen)
            chosen.append(row)
        owners.append(places[key])
    return chosen, owners
