"""Layer normalisation over the last dimension with scale and shift, bfloat16."""

import torch
from torch import nn

M = 16384
N = 4096
EPS = 1e-5


class Model(nn.Module):
    """y = (x - mean) / sqrt(var + eps) * weight + bias, the variance being the biased one."""

    def __init__(self, n: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(n).to(torch.bfloat16) + 0.5)
        self.bias = nn.Parameter(torch.randn(n).to(torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.eps)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(M, N).to(torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return [N, EPS]
