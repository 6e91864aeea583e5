"""The static stage lets honest kernels through, however they are written, and never falls over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.static_checks import check
from evaluator.task import list_tasks, load_task
from evaluator.types import EvalStatus
from tests.exploits.test_static_exploits import HERE

TASK = load_task("softmax")
HONEST = (HERE / "honest.py").read_text()
LAUNCH = "        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))\n"


def with_(*edits):
    text = HONEST
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    return text


CLEAN = {
    "atomics": with_(("tl.store(out_ptr + row * n_cols + cols, e", "tl.atomic_add(out_ptr + row * n_cols + cols, e")),
    "scratch buffer": with_(
        ("        out = torch", "        scratch = torch.zeros((8,), dtype=torch.float32)\n        out = torch")
    ),
    "two kernels": with_((LAUNCH, LAUNCH * 2)),
    "device function": with_(
        ("@triton.jit\n", "@triton.jit\ndef shifted(x):\n    return x - tl.max(x, axis=0)\n\n\n@triton.jit\n"),
        ("tl.exp(x - tl.max(x, axis=0))", "tl.exp(shifted(x))"),
    ),
    "heuristics": with_(("@triton.jit", '@triton.heuristics({"BLOCK": lambda args: 1024})\n@triton.jit')),
    "autotune": with_(
        ("@triton.jit", "@triton.autotune([triton.Config({}, num_warps=2)], key=['n_cols'])\n@triton.jit")
    ),
    "dataclass": with_(
        ("import torch\n", "from dataclasses import dataclass\n\nimport torch\n"),
        ("class ModelNew", "@dataclass\nclass Settings:\n    warps: int = 4\n\n\nclass ModelNew"),
    ),
    "typing and math": with_(("import torch\n", "import math\nfrom typing import Any\n\nimport torch\n")),
    "f-string": with_(
        ("        out = torch", '        assert x.ndim == 2, f"{x.ndim} dimensions"\n        out = torch')
    ),
    "config dict": with_(
        ("class ModelNew", 'CONFIG = {"num_warps": 4}\n\n\nclass ModelNew'),
        ("BLOCK=triton.next_power_of_2(x.shape[1]))", "BLOCK=triton.next_power_of_2(x.shape[1]), **CONFIG)"),
    ),
    "helper method": with_(
        (LAUNCH, "        self.launch(x, out)\n"),
        ("    def forward", "    def launch(self, x, out):\n" + LAUNCH + "\n    def forward"),
    ),
    "autograd function": with_(
        (
            "class ModelNew",
            "class Softmax(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
            "        out = torch.empty_like(x)\n" + LAUNCH + "        return out\n\n\nclass ModelNew",
        ),
    ).rsplit("        out = torch.empty_like(x)", 1)[0]
    + "        return Softmax.apply(x)\n",
    "weights of a layer": with_(
        (
            "    def forward",
            "    def __init__(self):\n        super().__init__()\n        self.lin = torch.nn.Linear(4, 4)\n\n"
            "    def forward",
        ),
        ("        out = torch", "        weight = self.lin.weight\n        out = torch"),
    ),
    "views and casts": with_(
        ("x = x.contiguous()", "x = x.to(torch.float32).view(x.shape).reshape(-1, x.shape[-1]).contiguous()")
    ),
    "another alias": HONEST.replace("import triton.language as tl", "from triton import language as L").replace(
        "tl.", "L."
    ),
}


@pytest.mark.parametrize("name", CLEAN)
def test_an_honest_kernel_is_clean_however_it_is_written(name):
    found = check(CLEAN[name], TASK)
    assert found.status is None, found.explain


@pytest.mark.parametrize("name", list_tasks())
def test_every_seed_is_clean(name):
    task = load_task(name)
    assert task.seed_source is not None
    assert check(task.seed_source, task).status is None


def test_torch_may_compute_where_the_task_allows_it():
    source = with_(("return out", "return torch.relu(out)"))
    assert check(source, TASK).status is EvalStatus.REJECTED_STATIC
    assert check(source, TASK.model_copy(update={"op_policy": "mixed"})).status is None


def test_a_verdict_points_at_its_line_and_says_what_to_do():
    found = check(with_(("return out", "return torch.softmax(x, -1)")), TASK)
    line = HONEST.splitlines().index("        return out") + 1
    assert found.line == line
    assert found.reason == f"line {line}: torch.softmax computes in torch"
    assert "return torch.softmax(x, -1)" in found.explain


def test_a_syntax_error_shows_the_line_and_a_caret():
    found = check("x = (1,\ny = 2\n", TASK)
    assert found.status is EvalStatus.SYNTAX_ERROR
    assert found.explain.endswith("^")


@pytest.mark.parametrize(
    "source",
    [
        "",
        "\0",
        "\udcff",
        "(" * 100_000,
        "x=" + "-" * 50_000 + "1",
        "a" * 2_000_000,
        "[" * 90 + "]" * 90,
        "lambda: " * 2000 + "0",
    ],
    ids=["empty", "null byte", "surrogate", "brackets", "minus signs", "long", "nested", "lambdas"],
)
def test_monstrous_sources_get_a_verdict(source):
    assert check(source, TASK).status in (
        EvalStatus.SYNTAX_ERROR,
        EvalStatus.MISSING_ENTRY_POINT,
        EvalStatus.REJECTED_STATIC,
    )


@given(st.text(max_size=300))
def test_no_text_makes_it_raise(text):
    check(text, TASK)
    check(HONEST + text, TASK)
