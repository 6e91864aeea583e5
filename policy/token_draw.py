"""Drawing one token for each row of logits, with the log-probability it was drawn with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def log_probabilities(logits: Tensor, temperature: float, top_k: int | None, top_p: float) -> Tensor:
    """Logarithms of the distribution that tokens are drawn from, shape (rows, tokens), float32; -inf is never drawn.

    Logits are divided by `temperature`, then cut to the `top_k` largest, then to the smallest set with `top_p` of the
    probability that is left; what remains sums to 1. A temperature of 0 leaves the largest alone. Ties at an edge go
    to the lower index.
    """
    import torch

    logits = logits.float()
    if temperature == 0:
        best = logits.argmax(dim=-1, keepdim=True)
        return torch.full_like(logits, -torch.inf).scatter_(-1, best, 0.0)
    logits = logits / temperature
    count = logits.shape[-1]
    if (top_k is None or top_k >= count) and top_p >= 1:
        return torch.log_softmax(logits, dim=-1)
    ordered, order = torch.sort(logits, dim=-1, descending=True, stable=True)
    if top_k is not None:
        ordered[..., top_k:] = -torch.inf
    chances = torch.softmax(ordered, dim=-1)
    before = chances.cumsum(dim=-1) - chances
    # The most likely token stays, however small top_p is.
    outside = before >= top_p
    outside[..., 0] = False
    ordered = ordered.masked_fill(outside, -torch.inf)
    return torch.empty_like(ordered).scatter_(-1, order, torch.log_softmax(ordered, dim=-1))


def draw(logprobs: Tensor, uniforms: Tensor) -> Tensor:
    """The index in each row whose share of [0, 1) holds that row's number; never one with no probability.

    `logprobs` has shape (rows, tokens), `uniforms` (rows,). The same numbers give the same tokens on every device, up
    to the rounding of the logits.
    """
    import torch

    sums = logprobs.double().exp().cumsum(dim=-1)
    wanted = uniforms.to(sums)[:, None] * sums[:, -1:]
    # Rounding must not lead behind the last token that has a share.
    last = (sums < sums[:, -1:]).sum(dim=-1, keepdim=True)
    return torch.minimum(torch.searchsorted(sums, wanted, right=True), last)[:, 0]
