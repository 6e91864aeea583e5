"""Layer normalisation, one program per row: a pass for the mean, a pass for the variance, a pass for the result."""

import torch
import triton
import triton.language as tl

BLOCK_SIZE = 256


@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, n_cols, x_stride, out_stride, eps, BLOCK_SIZE: tl.constexpr
):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        mask = cols < n_cols
        x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
        total += tl.sum(x, axis=0)
    mean = total / n_cols
    squares = 0.0
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        mask = cols < n_cols
        x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
        centred = tl.where(mask, x - mean, 0.0)
        squares += tl.sum(centred * centred, axis=0)
    inverse = 1.0 / tl.sqrt(squares / n_cols + eps)
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        mask = cols < n_cols
        x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        y = (x - mean) * inverse * weight + bias
        tl.store(out_ptr + row * out_stride + cols, y.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, n: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.ones(n, dtype=torch.bfloat16))
        self.bias = torch.nn.Parameter(torch.zeros(n, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n_rows, n_cols = x.shape
        out = torch.empty_like(x)
        grid = (n_rows,)
        layer_norm_kernel[grid](
            x,
            self.weight,
            self.bias,
            out,
            n_cols,
            x.stride(0),
            out.stride(0),
            self.eps,
            BLOCK_SIZE=BLOCK_SIZE,
            num_warps=4,
        )
        return out
