"""Sum of every row of a float32 matrix."""

import torch
from torch import nn

M = 16384
N = 16384


class Model(nn.Module):
    """y[i] = sum over j of x[i, j]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sum(x, dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(M, N)]


def get_init_inputs() -> list[object]:
    return []
