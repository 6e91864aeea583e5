"""Every rule of the static stage: what it refuses, with line and reason."""

from __future__ import annotations

import ast

import pytest

from evaluator import static_rules as rules
from evaluator.static_checks import check
from evaluator.types import EvalStatus
from tests.evaluator.static_cases import HONEST, LAUNCH, MIXED, RETURN, STRICT, beside, changed, inside, line_of

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
    "a module that a module holds": (beside("f = torch.nn.modules.linear.F"), "f = ", "torch.nn.modules is nothing"),
    "a member that needs no kernel": (
        inside("torch.Stream()"),
        "torch.Stream",
        "torch.Stream is nothing that a kernel",
    ),
    "a private attribute of another's object": (inside("x._base"), "x._base", "_base reaches into the runtime"),
    "what a function keeps": (inside("tl.cdiv.fn"), "tl.cdiv.fn", "reaches into triton.language.cdiv"),
    "a module in a class": (
        beside("class A:\n    library = torch"),
        "library = torch",
        "hands the module torch around",
    ),
    "two meanings": (beside("a = torch\na = triton"), "a = triton", "a stands for torch and for triton"),
    "a decorator used as a function": (
        beside("import dataclasses\n\ndataclasses.dataclass(torch.Tensor)"),
        "dataclass(torch",
        "changes what it is given",
    ),
    "a format string": (inside("'{0.training}'.format(self)"), "format(", "format may read attributes"),
    "a template from elsewhere": (inside("text = x\ntext.format(self)"), "text.format", "format may read attributes"),
    "what a module keeps for itself": (
        changed("    def forward", "    _call_impl = print\n\n    def forward"),
        "_call_impl",
        "which modules keep for themselves",
    ),
    "a name of Python's own": (inside("__build_class__"), "__build_class__", "reaches into the interpreter"),
    "a method as a value": (inside("f = [x][0].exp"), "f = [x]", ".exp computes in torch"),
    "a method that a class seems to have": (
        beside("class A:\n    exp: int = 0\n\n\ndef f(a):\n    return a.exp"),
        "return a.exp",
        ".exp computes in torch",
    ),
    "an operator's function as a value": (
        beside("import operator\n\nKEPT = [operator.sub]"),
        "KEPT = ",
        "hands operator.sub around",
    ),
    "a reduction of tensors": (
        beside(
            "import functools\nimport operator\n\n\n"
            "def f(x: torch.Tensor):\n    return functools.reduce(operator.add, (x, x))"
        ),
        "return functools",
        "operator.add computes in torch",
    ),
    "an element of a list of tensors": (inside("held = [x, x]\ny = held[0] * 2"), "held[0] * 2", "computes in torch"),
    "a loop over a list of tensors": (inside("for t in (x, x):\n    y = t * 2"), "t * 2", "computes in torch"),
    "a layer in a dict": (
        changed(
            "    def forward",
            "    def __init__(self):\n        super().__init__()\n        self.kept = {0: torch.nn.Softmax(1)}\n\n"
            "    def act(self, x):\n        return self.kept[0](x)\n\n    def forward",
        ),
        "self.kept[0](x)",
        "calls the layer self.kept[0]",
    ),
    "a layer given to a function": (inside("f = map(torch.nn.Softmax(1), [x])"), "f = map", "hands a torch.nn.Softmax"),
    "a class of layers in a list": (
        inside("[torch.nn.Softmax][0](1)(x)"),
        "[torch.nn",
        "hands torch.nn.Softmax around",
    ),
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
