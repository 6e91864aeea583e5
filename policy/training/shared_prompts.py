"""Logits of answers where answers to one prompt share its reading, forward and backward. Imports torch.

A group asks one prompt many times, and prompts are far longer than structured answers; trainers that read the prompt
anew for each row spend nearly all of their time there. The gradient is the same: it reaches the prompt through the
keys and values that the rows share. (Prefix sharing of inference servers, for training.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from policy.transformers_generate import accepted_by, cache_name, cache_of


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
    cache = cache_of(read)
    cache.batch_select_indices(places)
    kept = {cache_name(accepted_by(model)): cache}
    rest = model(input_ids=ids[:, -keep:-1], attention_mask=mask[:, :-1], use_cache=True, **kept)
    return torch.cat([first, rest.logits], dim=1)


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
