"""Matrix product of two float16 matrices, accumulated in float32, float16 result."""

import torch
from torch import nn

M = 4096
N = 4096
K = 4096


class Model(nn.Module):
    """c = a @ b."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(M, K).to(torch.float16), torch.randn(K, N).to(torch.float16)]


def get_init_inputs() -> list[object]:
    return []
