"""The static stage leaves honest kernels alone, however they are written: a false alarm is as bad as a miss."""

from __future__ import annotations

import ast

import pytest

from evaluator.static_checks import check
from tests.evaluator.static_cases import HONEST, LAUNCH, RETURN, STRICT, beside, changed

ATOMICS = """
import torch
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0), axis=0))


class ModelNew(torch.nn.Module):
    def forward(self, input):
        input = input.contiguous()
        out = torch.zeros(1, device=input.device, dtype=torch.float32)
        n = input.numel()
        sum_kernel[(triton.cdiv(n, 1024),)](input, out, n, BLOCK=1024)
        return out.view(())
"""

SCRATCH = """
from typing import Optional

import torch
import triton
import triton.language as tl


@triton.jit
def _load(ptr, at, n):
    return tl.load(ptr + at, mask=at < n, other=0.0)


@triton.jit
def _write(ptr, at, value, n):
    tl.store(ptr + at, value, mask=at < n)


@triton.jit
def partial_kernel(x_ptr, scratch_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    x = _load(x_ptr, pid * BLOCK + tl.arange(0, BLOCK), n)
    tl.store(scratch_ptr + pid, tl.sum(x, axis=0))


@triton.jit
def final_kernel(scratch_ptr, out_ptr, parts, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.sum(_load(scratch_ptr, at, parts), axis=0)
    _write(out_ptr, tl.arange(0, 1), total, 1)


def scratch(x: torch.Tensor, parts: int, dtype: Optional[torch.dtype] = None) -> torch.Tensor:
    return torch.empty((parts,), device=x.device, dtype=dtype or torch.float32)


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.numel()
        parts = triton.cdiv(n, 512)
        room = scratch(x, parts)
        out = torch.empty(1, device=x.device, dtype=x.dtype)
        partial_kernel[(parts,)](x, room, n, BLOCK=512)
        final_kernel[(1,)](room, out, parts, BLOCK=triton.next_power_of_2(parts))
        return out[0]
"""

CONFIGURED = """
import functools
import math
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import triton
import triton.language as tl


@dataclass(frozen=True)
class Config:
    block: int = 256
    options: dict = field(default_factory=lambda: {"num_warps": 4, "num_stages": 2})

    def __post_init__(self):
        assert self.block > 0, f"block must be positive, not {self.block}"


@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def scale_kernel(x_ptr, w_ptr, out_ptr, n, factor, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out_ptr + at, tl.load(x_ptr + at) * factor)
    else:
        tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)


@functools.lru_cache
def config(n: int) -> Config:
    return Config(block=128 if n < 1024 else 1024)


class ModelNew(nn.Module):
    num_warps = 4

    def __init__(self, n: int, eps: float = 1e-6):
        super().__init__()
        self.norm = nn.LayerNorm(n)
        self.weight = nn.Parameter(torch.randn(n).abs() * 0.5)
        self.factor = 1.0 / math.sqrt(n)
        self.eps = eps

    @torch.no_grad()
    def forward(self, x):
        chosen = config(x.numel())
        out = torch.empty_like(x)
        n = x.numel()
        size = n * 2 + x.shape[0] * x.stride(0)
        assert size >= 0 and x.dtype == out.dtype
        if x.shape == out.shape and n <= 1 << 20:
            n = min(n, max(1, n))
        scale_kernel[(triton.cdiv(n, chosen.block),)](
            x, self.norm.weight, out, n, self.factor, BLOCK=chosen.block, **chosen.options
        )
        with torch.cuda.device(x.device):
            return out


if __name__ == "__main__":
    print(config(3))
"""

FUNCTION = """
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def copy_kernel(x_desc, out_desc, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    out_desc.store([pid * BLOCK], x_desc.load([pid * BLOCK]))


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        source = TensorDescriptor(x, x.shape, x.stride(), [64])
        target = TensorDescriptor(out, out.shape, out.stride(), [64])
        copy_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](source, target, BLOCK=64)
        ctx.save_for_backward(x)
        ctx.size = x.numel()
        return out


class Base(torch.nn.Module):
    def forward(self, x):
        return Copy.apply(x)


class ModelNew(Base):
    pass
"""

OPERATIONS = """
import operator
from collections.abc import Callable
from enum import Enum
from functools import reduce
from itertools import product

import torch
import triton
import triton.language as tl
from torch._inductor.runtime.triton_helpers import libdevice
from triton.language.extra import libdevice as other


class Mode(Enum):
    ROW = 1
    BLOCK = 2


@triton.jit
def tanh_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, other.tanh(x), mask=at < n)


class ModelNew(torch.nn.Module):
    BLOCK = 512

    def softmax(self, x):
        return self.launch(x)

    def launch(self, x):
        x = x if x.is_contiguous() else x.contiguous()
        out = x.new_empty(x.shape)
        n = reduce(operator.mul, x.shape, 1)
        blocks = [a * b for a, b in product((1, 2), (4, 8))]
        run = tanh_kernel[(triton.cdiv(n, self.BLOCK),)]
        for shape, stride in zip(x.shape, x.stride()):
            assert shape * stride >= 0
        tanh_kernel[(triton.cdiv(n, self.BLOCK),)](x, out, n, BLOCK=self.BLOCK)
        return out

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1]).transpose(0, 1)
        rows, cols = flat.shape
        rows += cols
        x = x.contiguous()
        bigger = x.numel() > 3 and x.shape[0] == 12
        return self.softmax(x).view(x.size(0), -1)[:, : x.shape[-1]]
"""

CLEAN = {
    "atomics and a parameter called input": ATOMICS,
    "scratch buffers, two kernels and device functions": SCRATCH,
    "dataclasses, heuristics, f-strings, ** launches and a layer that holds parameters": CONFIGURED,
    "an autograd function, tensor descriptors and an inherited forward": FUNCTION,
    "arithmetic on sizes and methods named like operations": OPERATIONS,
    "a comment with forbidden words": "# exec(open('x')) import os\n" + HONEST,
    "a docstring with forbidden words": changed("class ModelNew", '"""torch.softmax, os.system"""\n\n\nclass ModelNew'),
    "windows line ends": HONEST.replace("\n", "\r\n"),
    "text that is not ASCII": "# größer als π\n" + HONEST,
    "a class attribute as block size": changed("    def forward", "    BLOCK = 512\n\n    def forward").replace(
        "BLOCK_SIZE=BLOCK_SIZE", "BLOCK_SIZE=self.BLOCK"
    ),
    "options in a dict": beside("OPTIONS = {'num_warps': 8, 'num_stages': 2}").replace("num_warps=4", "**OPTIONS"),
    "a branch on the size": changed(
        LAUNCH, "        if n_cols <= 1024:\n    " + LAUNCH + "        else:\n    " + LAUNCH
    ),
    "a loop of launches": changed(LAUNCH, "        for _ in range(n_rows):\n    " + LAUNCH),
    "a lambda grid": changed("grid = (n_rows,)", "grid = lambda meta: (n_rows,)"),
    "a launch in an inner function": changed(LAUNCH, "        def launch():\n    " + LAUNCH + "\n        launch()\n"),
    "an annotated future": "from __future__ import annotations\n" + HONEST,
    "a module's second name": beside("nn = torch.nn\nF32 = torch.float32"),
    "an autotuned kernel made by a call": beside(
        "softmax_kernel = triton.autotune(configs=[triton.Config({}, num_warps=4)], key=['n_cols'])(softmax_kernel)"
    ),
    "a launch through a chosen name": changed(
        LAUNCH,
        "        kernel = softmax_kernel if n_rows else None\n" + LAUNCH.replace("softmax_kernel[", "kernel["),
    ),
    "a launch kept for later": changed(
        LAUNCH,
        "        run = softmax_kernel[grid]\n" + LAUNCH.replace("softmax_kernel[grid]", "run"),
    ),
    "a kernel chosen by name": changed(LAUNCH, "        kernel = softmax_kernel\n" + LAUNCH),
    "a flag that is true": beside("FAST = True").replace(LAUNCH, "        if FAST:\n    " + LAUNCH),
}


@pytest.mark.parametrize("name", CLEAN)
def test_honest_code_is_left_alone(name):
    ast.parse(CLEAN[name])
    found = check(CLEAN[name], STRICT)
    assert found.status is None, found.explain


def test_dead_code_after_a_launch_takes_nothing_from_it():
    source = changed(RETURN, RETURN + "        raise ValueError('unreachable')\n")
    assert check(source, STRICT).status is None
