"""Kernels that the rewrite tests work on, each with setups that stress masks and tails."""

from evaluator.task import list_tasks, load_task, reference_module_source
from policy.rewrites.base import RewriteContext
from tests.policy.rewrites.harness import setup_of

SOFTMAX = '''\
"""Row softmax in three passes."""

import torch
import triton
import triton.language as tl

BLOCK_SIZE = 16


@triton.jit
def softmax_kernel(x_ptr, out_ptr, n_cols, x_stride, out_stride, BLOCK: tl.constexpr):
    """One program per row."""
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    # first pass: the maximum
    peak = tl.full((BLOCK,), -float("inf"), tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + offsets
        x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=-float("inf"))
        peak = tl.maximum(peak, x.to(tl.float32))
    row_max = tl.max(peak, axis=0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + offsets
        x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=-float("inf"))
        total += tl.exp(x.to(tl.float32) - row_max)
    denominator = tl.sum(total, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + offsets
        mask = cols < n_cols
        x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.exp(x - row_max) / denominator  # normalise
        tl.store(out_ptr + row * out_stride + cols, y.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, n_cols = x.shape
        out = torch.empty_like(x)
        softmax_kernel[(rows,)](
            x,
            out,
            n_cols,
            x.stride(0),
            out.stride(0),
            BLOCK=BLOCK_SIZE,
            num_warps=4,
        )
        return out
'''

LAYER_NORM = """\
import torch
import triton as t
import triton.language as tl


@t.jit
def norm(X, Y, W, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(X + row * n + cols, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / n
    centred = tl.where(mask, x - mean, 0.0)
    var = tl.sum(centred * centred, axis=0) / n
    rstd = 1.0 / tl.sqrt(var + eps)
    w = tl.load(W + cols, mask=mask, other=1.0)
    tl.store(Y + row * n + cols, centred * rstd * w, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(features))

    def forward(self, x):
        n = x.shape[-1]
        rows = x.numel() // n
        y = torch.empty_like(x)
        norm[(rows,)](x, y, self.weight, n, 1e-5, t.next_power_of_2(n), num_warps=4)
        return y
"""

MATMUL = """\
import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N, BLOCK_K = 16, 32, 16


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + offs_k
        a = tl.load(
            a_ptr + offs_m[:, None] * stride_am + ks[None, :] * stride_ak,
            mask=(offs_m[:, None] < M) & (ks[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + ks[:, None] * stride_bk + offs_n[None, :] * stride_bn,
            mask=(ks[:, None] < K) & (offs_n[None, :] < N),
            other=0.0,
        )
        acc += tl.dot(a, b, input_precision="ieee")
    c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn, acc, mask=c_mask)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        M, K = a.shape
        N = b.shape[1]
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)
        grid = (triton.cdiv(M, BLOCK_M), triton.cdiv(N, BLOCK_N))
        matmul_kernel[grid](
            a, b, c, M, N, K,
            a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1),
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, num_warps=4, num_stages=3,
        )
        return c
"""

TWO_ELEMENTWISE = """\
import torch
import triton
import triton.language as tl

BLOCK = 64


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@triton.jit
def silu_kernel(in_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(in_ptr + offsets, mask=mask)
    # x * sigmoid(x)
    tl.store(out_ptr + offsets, x / (1.0 + tl.exp(-x)), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        n = x.numel()
        total = torch.empty_like(x)
        out = torch.empty_like(x)
        grid = (triton.cdiv(n, BLOCK),)
        add_kernel[grid](x, y, total, n, BLOCK=BLOCK)
        silu_kernel[grid](total, out, n, BLOCK=BLOCK)
        return out
"""

ROWS = ("1, 1", "3, 7", "2, 16", "2, 37", "1, 64")
SOFTMAX_SETUPS = tuple(setup_of(f"torch.randn({shape})") for shape in ROWS)
LAYER_NORM_SETUPS = tuple(setup_of(f"torch.randn({shape})", init=(int(shape.split(",")[1]),)) for shape in ROWS[1:])
MATMUL_SETUPS = tuple(
    setup_of(f"torch.randn({m}, {k})", f"torch.randn({k}, {n})")
    for m, k, n in ((1, 1, 1), (17, 37, 41), (32, 32, 64), (16, 48, 33))
)
ELEMENTWISE_SETUPS = tuple(
    setup_of(f"torch.randn({shape})", f"torch.randn({shape})") for shape in ("1", "7, 13", "128", "3, 64")
)

ALL = {
    "softmax": (SOFTMAX, SOFTMAX_SETUPS),
    "layer_norm": (LAYER_NORM, LAYER_NORM_SETUPS),
    "matmul": (MATMUL, MATMUL_SETUPS),
    "two_elementwise": (TWO_ELEMENTWISE, ELEMENTWISE_SETUPS),
}


# The shipped tasks' own seeds, on their check shapes.
TASKS = {name: load_task(name) for name in list_tasks()}
SEEDS = {
    name: (task.seed_source, tuple(reference_module_source(task, shape) for shape in task.check_shapes))
    for name, task in TASKS.items()
    if task.seed_source is not None
}
CONTEXTS = {name: RewriteContext.of_task(task) for name, task in TASKS.items()}


def tolerance_of(name):
    """rtol and atol that rounding may use up on a task: generous to bfloat16, strict to float32."""
    return (2e-2, 2e-2) if TASKS[name].dtype != "float32" else (1e-4, 1e-5)
