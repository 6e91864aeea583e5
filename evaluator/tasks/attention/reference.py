"""Causal self-attention of several heads, bfloat16."""

import torch
from torch import nn

B = 4
H = 32
T = 4096
D = 128


class Model(nn.Module):
    """softmax(q k^T / sqrt(D), causal) v."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(B, H, T, D).to(torch.bfloat16) for _ in range(3)]


def get_init_inputs() -> list[object]:
    return []
