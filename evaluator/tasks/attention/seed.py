"""Causal attention: one program per 16 queries of one head walks over all keys up to its last query."""

import math

import torch
import triton
import triton.language as tl

BLOCK_M = 16
BLOCK_N = 16


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    stride_h,
    stride_t,
    n_ctx,
    scale,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    pid_m = tl.program_id(0)
    head = tl.program_id(1)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, HEAD_DIM)
    m_mask = offs_m < n_ctx
    base = head.to(tl.int64) * stride_h
    q = tl.load(q_ptr + base + offs_m[:, None] * stride_t + offs_d[None, :], mask=m_mask[:, None], other=0.0)
    row_max = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    row_sum = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, HEAD_DIM), dtype=tl.float32)
    last = tl.minimum((pid_m + 1) * BLOCK_M, n_ctx)
    for start in range(0, last, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        n_mask = offs_n < n_ctx
        k = tl.load(k_ptr + base + offs_n[:, None] * stride_t + offs_d[None, :], mask=n_mask[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k)) * scale
        scores = tl.where((offs_m[:, None] >= offs_n[None, :]) & n_mask[None, :], scores, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        weights = tl.exp(scores - new_max[:, None])
        shrink = tl.exp(row_max - new_max)
        row_sum = row_sum * shrink + tl.sum(weights, axis=1)
        v = tl.load(v_ptr + base + offs_n[:, None] * stride_t + offs_d[None, :], mask=n_mask[:, None], other=0.0)
        acc = acc * shrink[:, None] + tl.dot(weights.to(v.dtype), v)
        row_max = new_max
    acc = acc / row_sum[:, None]
    out_ptrs = out_ptr + base + offs_m[:, None] * stride_t + offs_d[None, :]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=m_mask[:, None])


class ModelNew(torch.nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, heads, n_ctx, head_dim = q.shape
        out = torch.empty_like(q)
        grid = (triton.cdiv(n_ctx, BLOCK_M), batch * heads)
        attention_kernel[grid](
            q,
            k,
            v,
            out,
            q.stride(1),
            q.stride(2),
            n_ctx,
            1.0 / math.sqrt(head_dim),
            HEAD_DIM=head_dim,
            BLOCK_M=BLOCK_M,
            BLOCK_N=BLOCK_N,
            num_warps=4,
            num_stages=3,
        )
        return out
