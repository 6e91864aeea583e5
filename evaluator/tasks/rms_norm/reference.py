"""Root-mean-square normalisation over the last dimension with scale, bfloat16."""

import torch
from torch import nn

M = 16384
N = 4096
EPS = 1e-6


class Model(nn.Module):
    """y = x / sqrt(mean(x^2) + eps) * weight, computed in float32."""

    def __init__(self, n: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(n).to(torch.bfloat16) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(M, N).to(torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return [N, EPS]
