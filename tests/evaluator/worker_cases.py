"""Helpers for tests that run untrusted sources in a worker with the static checks left out."""

from __future__ import annotations

import textwrap

import torch

from evaluator.sandbox import Limits
from evaluator.stages import failure, reported

HEAD = """import torch
import triton
import triton.language as tl


class ModelNew(torch.nn.Module):
    def forward(self, x):
"""
QUICK = Limits(wall_seconds=5.0, memory_bytes=2048 << 20)


def model(body: str) -> str:
    return HEAD + textwrap.indent(textwrap.dedent(body).strip(), " " * 8) + "\n"


def check(host, source: str, limits: Limits = QUICK, **data):
    """The verdict of one check job (None when it gave outputs) and its outcome."""
    case = {"init_args": [], "state": {}, "inputs": [torch.arange(4.0)], "repeat": False}
    job = {"kind": "check", "source": source, "redzone_bytes": 256, "cases": [{**case, **data}]}
    outcome = host.run(job, limits)
    verdict = failure(outcome)
    if verdict is None and "error" in (first := outcome.answer["result"][0]):
        verdict = reported(first["error"])
    return verdict, outcome
