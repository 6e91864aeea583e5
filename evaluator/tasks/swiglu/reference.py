"""SwiGLU activation: silu(gate) * up, element by element, bfloat16."""

import torch
from torch import nn

M = 16384
N = 11008


class Model(nn.Module):
    """y = gate * sigmoid(gate) * up, computed in float32."""

    def forward(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return (nn.functional.silu(gate.float()) * up.float()).to(gate.dtype)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(M, N).to(torch.bfloat16), torch.randn(M, N).to(torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return []
