"""Honest code that looks like what the static stage refuses passes it."""

from __future__ import annotations

import ast

import pytest

from evaluator.static_checks import check
from tests.evaluator.static_cases import RETURN, STRICT, beside, changed, inside

LAYERS = """
import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, w_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * tl.load(w_ptr), mask=at < n)


def projection(n):
    return torch.nn.Linear(n, n, bias=False)


class ModelNew(torch.nn.Module):
    def __init__(self, n: int, depth: int = 2):
        super().__init__()
        made = []
        for _ in range(depth):
            made.append(torch.nn.Linear(n, n).to(torch.float16))
        self.net = torch.nn.Sequential(*made)
        self.blocks = torch.nn.ModuleList([torch.nn.LayerNorm(n) for _ in range(depth)])
        self.named = torch.nn.ModuleDict({"q": projection(n), "k": projection(n)})
        self.norm = torch.nn.LayerNorm(n) if depth else None
        alone = torch.nn.Linear(n, n)
        self.weight = torch.nn.Parameter(alone.weight.detach().clone())
        self.kept = projection(n).eval()
        for module in self.modules():
            if isinstance(module, (torch.nn.Linear, torch.nn.LayerNorm)):
                torch.nn.init.ones_(module.weight)

    def forward(self, x):
        out = torch.empty_like(x)
        weights = [block.weight for block in self.blocks] + [self.net[0].weight, self.named["q"].weight]
        if self.norm is not None:
            weights.append(self.norm.weight)
        for layer, block in zip(self.net, self.blocks):
            copy_kernel[(1,)](x, layer.weight, out, block.weight.numel(), BLOCK=64)
        for index, block in enumerate(self.blocks):
            copy_kernel[(1,)](x, block.bias, out, x.numel() + index, BLOCK=64)
        return out
"""

INDUCTOR = """
import torch
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.hints import AutotuneHint, DeviceProperties, ReductionHint
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math

triton_helpers.set_driver_to_gpu()


@triton_heuristics.persistent_reduction(
    size_hints={"x": 128, "r0_": 128},
    reduction_hint=ReductionHint.INNER,
    filename=__file__,
    triton_meta={"device": DeviceProperties(type="cuda", index=0, multi_processor_count=132, cc=90)},
    inductor_meta={"autotune_hints": {AutotuneHint.ONE_ELEMENT_PER_THREAD}},
)
@triton.jit
def triton_per_fused(in_ptr0, out_ptr2, xnumel, R0_BLOCK: tl.constexpr):
    at = tl.arange(0, R0_BLOCK)[None, :]
    value = tl.load(in_ptr0 + at, at < xnumel, other=0.0)
    largest = triton_helpers.max2(value, 1)[:, None]
    tl.store(out_ptr2 + at, tl_math.abs(libdevice.exp(value - largest)), at < xnumel)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        triton_per_fused[(1,)](x, out, x.numel())
        return out
"""

NEAR_MISSES = {
    "layers whose parameters alone are used, however they are kept": LAYERS,
    "a kernel as Inductor writes it": INDUCTOR,
    "the smallest number of a type": inside(
        "info = torch.finfo(x.dtype)\nlow, high = torch.finfo(x.dtype).min, info.max"
    ),
    "methods of sets, lists and dicts": inside(
        "seen, names, known = set(), [], {}\nseen.add(1)\nnames.sort()\nknown.update(a=1)\nlist(known.values())"
    ),
    "a format string without attributes": inside("'{:.3f} of {}'.format(1.0, 2)"),
    "a private attribute of one's own": beside("class C:\n    _n = 3\n\n\nN = C()._n"),
    "methods of a named tuple": beside(
        "from collections import namedtuple\n\nC = namedtuple('C', 'a b')\nD = C(1, 2)._replace(a=3)._asdict()"
    ),
    "an attribute named like a method": changed(
        "    def forward",
        "    def __init__(self):\n        super().__init__()\n        self.log = True\n\n    def forward",
    ).replace(RETURN, "        size = 1 if self.log else 2\n" + RETURN),
    "a field named like a method": beside(
        "from dataclasses import dataclass\n\n\n@dataclass\nclass C:\n    norm: int = 1\n\n\nNORM = C().norm"
    ),
    "an imported name that a variable takes over": "from math import e\n"
    + changed("    row_sum = 0.0\n", "    e = row_max\n    e = e.to(tl.float32)\n    row_sum = 0.0\n"),
    "one name for two types": beside(
        "def f(x):\n    dtype = torch.float16\n    return dtype.itemsize\n\n\n"
        "def g(x):\n    dtype = x.dtype\n    return dtype.itemsize"
    ),
    "a chosen allocation": inside("out = (torch.empty if n_rows > 1 else torch.zeros)(x.shape)"),
    "operators on sizes": beside(
        "import functools\nimport itertools\nimport operator\n\nMUL = operator.mul\n\n\ndef sizes(x):\n"
        "    n = functools.reduce(MUL, x.shape, 1) + operator.mul(x.shape[0], 2)\n"
        "    ends = list(itertools.accumulate(x.shape, func=operator.add))\n"
        "    return n, sorted([(1, 2)], key=operator.itemgetter(1)), ends"
    ),
    "wraps as a decorator": beside(
        "import functools\n\n\ndef once(f):\n    @functools.wraps(f)\n    def inner(*args):\n"
        "        return f(*args)\n\n    return inner"
    ),
    "mixed precision of an autograd function": beside(
        "from torch.autograd import Function\n\n\nclass F(Function):\n    @staticmethod\n"
        "    @torch.amp.custom_fwd(device_type='cuda')\n    def forward(ctx, x):\n"
        "        ctx.save_for_backward(x)\n        return x"
    ),
    "a hook of a config": beside(
        "def clear(args):\n    args['out'].zero_()\n\n\nCONFIGS = [triton.Config({}, pre_hook=clear)]"
    ),
    "memory for descriptors": inside("triton.set_allocator(lambda size, align, stream: torch.empty(size))"),
    "the size of a type": inside("bits = tl.float32.primitive_bitwidth + torch.float16.itemsize"),
    "the device's properties": inside("torch.cuda.get_device_properties(x.device).multi_processor_count"),
    "a method of a class": inside("import itertools\nlist(itertools.chain.from_iterable([[1], [2]]))"),
    "a slip in a kernel, of which the compiler says more": changed("tl.maximum(", "tl.maximun("),
    "a slip in a name of Python's": inside("import math\nmath.sqr(2.0)"),
    "parts of tensors in lists": inside("parts = [x, out]\nothers = parts[1:] + [x]\nn = parts[0].shape[0] * 2"),
    "static and class methods": beside(
        "class Op:\n    @staticmethod\n    def run(x):\n        return x\n\n    @classmethod\n"
        "    def new(cls):\n        return cls()\n\n\nONE = Op.run(Op.new())"
    ),
}
"""Honest code beside what a rule refuses."""


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_honest_code_that_looks_like_a_way_in_is_left_alone(name):
    ast.parse(NEAR_MISSES[name])
    found = check(NEAR_MISSES[name], STRICT)
    assert found.status is None, found.explain


def test_a_slip_in_a_name_of_torchs_is_left_to_running_where_torch_may_compute():
    slip = inside("y = torch.sofmax(x, dim=1)")
    assert check(slip, STRICT.model_copy(update={"op_policy": "mixed"})).status is None
    assert check(slip, STRICT).status is not None
    module = inside("y = torch.onnx")
    assert check(module, STRICT.model_copy(update={"op_policy": "mixed"})).status is not None
