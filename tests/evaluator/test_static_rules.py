"""Every rule of the static stage: what it refuses, with line and reason, and the honest code beside it."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluator import static_rules as rules
from evaluator.static_checks import MAX_SOURCE_BYTES, check
from evaluator.task import load_task
from evaluator.types import EvalStatus

STRICT = load_task("softmax")
MIXED = STRICT.model_copy(update={"op_policy": "mixed"})

HONEST = load_task("softmax").seed_source
assert HONEST is not None
LAUNCH = (
    "        softmax_kernel[grid](x, out, n_cols, x.stride(0), out.stride(0), BLOCK_SIZE=BLOCK_SIZE, num_warps=4)\n"
)
RETURN = "        return out\n"


def changed(old: str, new: str) -> str:
    assert old in HONEST, old
    return HONEST.replace(old, new)


def beside(text: str) -> str:
    """The honest kernel with module-level code before its class."""
    return changed("class ModelNew", f"{textwrap.dedent(text).strip()}\n\n\nclass ModelNew")


def inside(text: str) -> str:
    """The honest kernel with statements before forward's return."""
    return changed(RETURN, textwrap.indent(textwrap.dedent(text).strip(), " " * 8) + "\n" + RETURN)


def line_of(source: str, text: str) -> int:
    """The one line of `source` that holds `text`."""
    (number,) = [number for number, line in enumerate(source.splitlines(), 1) if text in line]
    return number


REFUSED = {
    "a foreign import": (beside("import numpy"), "import numpy", "imports numpy"),
    "a relative import": (beside("from . import secrets"), "from . import", "imports ."),
    "a star import": (beside("from math import *"), "from math", "imports everything from math"),
    "an import of what a library holds": (beside("from typing import sys"), "from typing", "reaches the module sys"),
    "an import of a forbidden member": (beside("from torch import load"), "from torch", "reads files"),
    "code from text": (inside("exec('x = 1')"), "exec(", "runs code the judge cannot read"),
    "getattr": (inside("getattr(x, 'sum')()"), "getattr(", "reaches attributes"),
    "a file": (inside("open('a')"), "open(", "reaches outside"),
    "a builtin kept at module level": (beside("kept = open"), "kept = open", "reaches outside"),
    "a builtin as a default": (beside("def f(open=open):\n    return open"), "def f(", "reaches outside"),
    "a builtin that another function shadows": (
        beside("def f(id):\n    return id\n\n\ndef g():\n    return id(f)"),
        "return id(f)",
        "identifies tensors",
    ),
    "the reference": (inside("Model()(x)"), "Model()(x)", "the reference's class Model"),
    "a dunder": (inside("x.__class__"), "__class__", "reaches __class__"),
    "the training flag": (inside("if self.training:\n    pass"), "self.training", "when it is judged"),
    "a stream": (inside("s = torch.cuda.Stream()"), "Stream()", "the judge's"),
    "a library of operators": (inside("torch.ops.aten.sum(x)"), "torch.ops", "calls compiled operators"),
    "a private part of torch": (inside("torch._dynamo.reset()"), "_dynamo", "reaches into the runtime"),
    "a hook": (inside("self.register_forward_hook(print)"), "register_", "outside of the forward"),
    "a patch": (beside("torch.allclose = max"), "torch.allclose", "changes torch.allclose"),
    "a rebound library": (inside("torch = x"), "torch = x", "rebinds torch"),
    "a library handed around": (inside("print(torch)"), "print(torch)", "hands the module torch around"),
    "a metaclass": (beside("class A(metaclass=type):\n    pass"), "class A", "a metaclass"),
    "an attribute of an expression": (inside("[torch.Tensor][0].sum = max"), "[0].sum", "changes"),
    "caught exceptions": (inside("try:\n    pass\nfinally:\n    pass"), "try:", "catches exceptions"),
    "a coroutine": (beside("async def f():\n    pass"), "async def", "suspends its work"),
    "a rebound kernel": (inside("softmax_kernel = x"), "softmax_kernel = x", "rebinds the kernel"),
    "a kernel's insides": (inside("softmax_kernel.cache.clear()"), ".cache", "reaches cache of the kernel"),
    "a redefined kernel": (beside("class softmax_kernel:\n    pass"), "class softmax_kernel", "defines softmax_kernel"),
    "a function of torch": (inside("torch.softmax(x, 1)"), "torch.softmax", "torch.softmax computes in torch"),
    "a method": (inside("x.softmax(1)"), "x.softmax", "computes in torch"),
    "a method on something unknown": (inside("[x][0].softmax(1)"), "softmax(1)", "computes in torch"),
    "an operator": (inside("y = 2 * x"), "2 * x", "2 * x computes in torch"),
    "an operator after a view": (inside("y = x.view(-1)[1:]\ny -= 1"), "y -= 1", "computes in torch"),
    "a matrix product": (inside("[x][0] @ [x][0]"), "[0] @", "multiplies matrices"),
    "a function kept by a constructor": (
        changed("    def forward", "    def __init__(self):\n        self.f = torch.softmax\n\n    def forward"),
        "self.f = ",
        "torch.softmax computes in torch",
    ),
    "a lambda made by a constructor": (
        changed(
            "    def forward",
            "    def __init__(self):\n        self.f = lambda x: torch.softmax(x, 1)\n\n    def forward",
        ),
        "self.f = ",
        "torch.softmax computes in torch",
    ),
    "a call of a layer": (inside("torch.nn.Softmax(1)(x)"), "Softmax(1)(x)", "calls a torch.nn.Softmax"),
    "a loop over a tensor": (inside("y = [v * 2 for v in x]"), "v * 2", "v * 2 computes in torch"),
    "no launch": (HONEST.replace(LAUNCH, ""), "class ModelNew", "never launches"),
    "a kernel that stores nothing": (
        changed("tl.store(out_ptr + row * out_stride + cols, y, mask=mask)", "y = y"),
        "def softmax_kernel",
        "stores nothing",
    ),
    "no kernel": (HONEST.replace("@triton.jit\n", ""), "class ModelNew", "defines no @triton.jit"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_rule_says_where_and_why(name):
    source, text, words = REFUSED[name]
    ast.parse(source)
    found = check(source, STRICT)
    assert found.status is EvalStatus.REJECTED_STATIC
    assert found.line == line_of(source, text)
    assert found.reason.startswith(f"line {found.line}: ")
    assert words in found.reason
    assert "\n" not in found.reason
    assert source.splitlines()[found.line - 1].strip() in found.explain
    assert len(found.explain.splitlines()) == 3, "the reason, the line, and what to do instead"


@pytest.mark.parametrize("prefix", sorted(rules.FORBIDDEN_PATHS))
def test_every_forbidden_path_is_refused(prefix):
    found = check(f"import operator\n{inside(f'{prefix}.x')}", MIXED)
    assert found.status is EvalStatus.REJECTED_STATIC
    assert prefix in found.reason


@pytest.mark.parametrize("name", sorted({*rules.FORBIDDEN_NAMES} - {"__builtins__", "__import__"}))
def test_every_forbidden_name_is_refused_unless_it_is_a_parameter(name):
    found = check(inside(f"{name}"), MIXED)
    assert found.status is EvalStatus.REJECTED_STATIC
    assert name in found.reason
    if not name.startswith("__"):
        assert check(beside(f"def f({name}):\n    return {name}"), MIXED).status is None


def test_a_syntax_error_shows_the_line_and_the_place():
    found = check("import torch\ndef f(:\n    pass\n", STRICT)
    assert (found.status, found.line) == (EvalStatus.SYNTAX_ERROR, 2)
    assert found.explain.splitlines()[1:] == ["def f(:", "      ^"]


@pytest.mark.parametrize(
    "source",
    ["", "x = 1\n", "ModelNew = 3\n", "def ModelNew():\n    pass\n", "if True:\n    class ModelNew:\n        pass\n"],
)
def test_without_the_class_there_is_no_entry_point(source):
    found = check(source, STRICT)
    assert found.status is EvalStatus.MISSING_ENTRY_POINT
    assert "class ModelNew(torch.nn.Module)" in found.explain


def test_lines_are_counted_as_python_counts_them():
    source = beside("text = 'a\u2028b\x0c'").replace(RETURN, "        return x * 2\n")
    found = check(source, STRICT)
    assert "return x * 2" in found.explain


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


NASTY = {
    "nothing": "",
    "a null byte": "x = '\x00'\n",
    "a lone surrogate": "x = '\ud800'\n" + HONEST,
    "a lone surrogate in a comment": HONEST + "# \udfff\n",
    "a byte order mark": "\ufeff" + HONEST,
    "deep parentheses": HONEST + "x = " + "(" * 5000 + ")" * 5000,
    "deep lists": "[" * 150 + "]" * 150,
    "deep sums": HONEST + "x = " + "+".join(["1"] * 20000),
    "deep attributes": HONEST + "x = torch" + ".a" * 5000,
    "deep calls": HONEST + "x = f" + "()" * 3000,
    "deep subscripts": HONEST + "x = f" + "[0]" * 3000,
    "deep negation": HONEST + "x = " + "not " * 5000 + "1",
    "deep functions": HONEST
    + "\n".join(" " * depth + f"def f{depth}():" for depth in range(90))
    + "\n"
    + " " * 90
    + "0",
    "a long line": HONEST + "x = '" + "a" * 200_000 + "'\n",
    "many lines": HONEST + "x = 1\n" * 20_000,
    "many functions": HONEST + "".join(f"def f{index}(x):\n    return x.shape\n" for index in range(1500)),
    "a megabyte": HONEST + "#" * (1 << 20),
    "a base class of itself": HONEST.replace("(torch.nn.Module)", "(ModelNew)").replace("def forward", "def backward"),
    "names that chase each other": HONEST
    + "".join(f"a{index} = a{index + 1}\n" for index in range(500))
    + "a500 = a0\n",
    "a bad escape": HONEST + "x = '\\N{no such name}'\n",
    "an unfinished line": HONEST + "x = (",
    "a huge number": HONEST + "x = " + "9" * 100_000,
}


@pytest.mark.parametrize("name", NASTY)
def test_nothing_makes_it_raise(name):
    found = check(NASTY[name], STRICT)
    assert found.status is None or (found.reason and found.explain)
    found.model_dump_json()  # what is recorded must be writable


@pytest.mark.parametrize("name", ["nothing", "a null byte", "a lone surrogate", "a megabyte", "deep parentheses"])
def test_what_python_cannot_read_is_refused(name):
    assert check(NASTY[name], STRICT).status is not None


def test_the_size_limit_is_named():
    found = check("#" * (MAX_SOURCE_BYTES + 1024), STRICT)
    assert found.status is EvalStatus.REJECTED_STATIC
    assert "513 KiB long, more than 512 KiB" in found.reason


@given(st.text(st.characters(exclude_categories=()), max_size=300))
def test_arbitrary_text_never_raises(text):
    assert check(text, STRICT).status is not None


PIECES = [
    *(
        "torch",
        "x",
        "out",
        "self",
        ".",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ":",
        ",",
        "=",
        "*",
        "@",
        ":=",
        "\n",
        "    ",
        "\n\n",
    ),
    *(
        "if ",
        "for ",
        " in ",
        "while ",
        "def ",
        "class ",
        "lambda ",
        "return ",
        "del ",
        "match ",
        "case ",
        "async ",
        "type",
    ),
    *(
        "with ",
        " as ",
        "import ",
        "from ",
        "0",
        "False",
        "'meta'",
        "softmax_kernel",
        "forward",
        "F",
        "nn",
        "_",
        "getattr",
    ),
]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join), st.integers(0, len(HONEST)))
def test_a_kernel_with_pieces_pasted_in_never_raises(text, place):
    found = check(HONEST[:place] + text + HONEST[place:], STRICT)
    assert found.status is None or found.reason


@given(st.integers(0, len(HONEST)), st.integers(0, len(HONEST)))
def test_a_kernel_with_a_part_missing_never_raises(first, last):
    found = check(HONEST[: min(first, last)] + HONEST[max(first, last) :], STRICT)
    assert found.status is None or found.reason


def test_checking_loads_no_torch():
    script = (
        "import sys\nfrom evaluator.static_checks import check\nfrom evaluator.task import load_task\n"
        "task = load_task('softmax')\nassert check(task.seed_source, task).status is None\n"
        "print('torch' in sys.modules, 'triton' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


WITH_LIBRARY = STRICT.model_copy(update={"imports": ("liger_kernel",)})
THIN = """
import torch
from liger_kernel.ops.softmax import LigerSoftmaxFunction

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return LigerSoftmaxFunction.apply(x)
"""


def test_a_library_that_the_task_allows_brings_its_kernels():
    assert check(THIN, WITH_LIBRARY).status is None


def test_a_library_that_the_task_does_not_name_is_refused():
    assert "imports liger_kernel" in check(THIN, STRICT).reason


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("return Liger", "y = torch.exp(x)\n        return Liger", "torch.exp computes in torch"),
        ("LigerSoftmaxFunction.apply(x)", "torch.empty_like(x)", "defines no @triton.jit kernel"),
        ("liger_kernel.ops.softmax import", "liger_kernel.os import", "reaches the module os"),
        ("liger_kernel.ops", "liger_kernel_too.ops", "imports liger_kernel_too.ops"),
    ],
)
def test_an_allowed_library_excuses_nothing_else(old, new, reason):
    assert old in THIN
    assert reason in check(THIN.replace(old, new), WITH_LIBRARY).reason
