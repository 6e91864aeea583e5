"""Cross entropy of every row of bfloat16 logits against an integer target, without reduction, float32 result."""

import torch
from torch import nn

M = 8192
N = 32000


class Model(nn.Module):
    """loss[i] = logsumexp(logits[i]) - logits[i, target[i]]."""

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits.float(), targets, reduction="none")


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(M, N).to(torch.bfloat16), torch.randint(0, N, (M,))]


def get_init_inputs() -> list[object]:
    return []
