"""Row-wise softmax of a float32 matrix."""

import torch
from torch import nn

M = 8192
N = 4096


class Model(nn.Module):
    """softmax(x) over the last dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(M, N)]


def get_init_inputs() -> list[object]:
    return []
