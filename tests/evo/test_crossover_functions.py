"""A kernel takes the place of its namesake in another source where it fits."""

from __future__ import annotations

import ast

import pytest

from evo.operators.crossover import CrossoverOperator
from evo.operators.functions import exchangeable, exchanged
from policy.types import Proposal
from tests.evo import fakes
from tests.evo.driver import campaign
from tests.evo.test_crossover import settings

HEAD = """import torch
import triton
import triton.language as tl

SCALE = 2.0
"""
FIRST = """

@triton.jit
def first(x_ptr, n, BLOCK: tl.constexpr):
    # as it was
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at) * SCALE)
"""
SECOND = """

@triton.jit
def second(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr, 1.0)
"""
HOST = """

class ModelNew(torch.nn.Module):
    def forward(self, x):
        first[(1,)](x, 8, BLOCK=8)
        second[(1,)](x, 8, BLOCK=8)
        return x
"""
RECEIVER = HEAD + FIRST + SECOND + HOST
OTHER_BODY = RECEIVER.replace("* SCALE", "* SCALE * 1.0").replace("BLOCK=8", "BLOCK=16")


def test_the_named_function_comes_from_the_donor_and_all_else_stays():
    assert exchangeable(RECEIVER, OTHER_BODY) == ["first"]
    assert exchanged(RECEIVER, OTHER_BODY, "first") == RECEIVER.replace("* SCALE", "* SCALE * 1.0")


@pytest.mark.parametrize(
    "donor",
    [
        RECEIVER,
        RECEIVER.replace("# as it was", "# as it is"),
        OTHER_BODY.replace("first", "third"),
        OTHER_BODY.replace("def first(x_ptr, n, ", "def first(x_ptr, m, "),
        OTHER_BODY.replace("def first(x_ptr, n, BLOCK: tl.constexpr)", "def first(x_ptr, n, BLOCK)"),
        OTHER_BODY.replace("def first(x_ptr, n, BLOCK: tl.constexpr)", "def first(x_ptr, n, BLOCK: tl.constexpr = 4)"),
        OTHER_BODY.replace("SCALE = 2.0", "SCALE = 3.0"),
        OTHER_BODY.replace("* 1.0", "* UNKNOWN"),
        OTHER_BODY.replace("@triton.jit\ndef first", "def first"),
        OTHER_BODY + "\nthis is no Python",
    ],
    ids=[
        "same",
        "comment",
        "name",
        "parameter",
        "constexpr",
        "default",
        "constant",
        "undefined",
        "no jit",
        "no python",
    ],
)
def test_what_does_not_fit_is_not_exchanged(donor):
    assert "first" not in exchangeable(RECEIVER, donor)


def test_helpers_that_only_the_donor_has_come_along_in_its_order():
    helpers = "\nHALF = 0.5\n\n\n@triton.jit\ndef halved(x):\n    return x * HALF\n"
    donor = RECEIVER.replace(FIRST, helpers + FIRST.replace("* SCALE", "* halved(SCALE)"))
    child = exchanged(RECEIVER, donor, "first")
    names = [node.name for node in ast.parse(child).body if isinstance(node, ast.FunctionDef)]
    assert names == ["halved", "first", "second"]
    assert "HALF = 0.5\n" in child
    assert exchangeable(child, donor) == []


def test_a_helper_of_the_same_name_and_another_meaning_keeps_a_function_out():
    own = RECEIVER.replace(FIRST, "\n\n@triton.jit\ndef halved(x):\n    return x\n" + FIRST)
    donor = RECEIVER.replace(
        FIRST, "\n\n@triton.jit\ndef halved(x):\n    return x * 0.5\n" + FIRST.replace("* SCALE", "* halved(SCALE)")
    )
    assert exchangeable(own, donor) == ["halved"]


class TwoKernelPolicy(fakes.FakePolicy):
    """Changes one of two kernels or the host code, as a model that writes whole files: no history says what it did."""

    def _child(self, request):
        parent = request.parents[0].source.text
        kernel = ("one", "two")[request.seed % 2]
        text = parent.replace(f"# {kernel}\n", f"# {kernel}\n    n += {request.seed}\n", 1)
        grown = (*fakes.variant(parent), request.seed % 9 + 1)
        text = text.replace(f"VARIANT = {fakes.variant(parent)!r}", f"VARIANT = {grown!r}")
        return Proposal(source=request.parents[0].source.model_copy(update={"text": text}), operator=request.operator)


TWO = (
    fakes.SEED.replace("    offsets =", "    # one\n    offsets =", 1)
    + "\n\n@triton.jit\ndef other_kernel(x_ptr, n):\n    # two\n    tl.store(x_ptr, n)\n"
)


@pytest.fixture
def run(tmp_path):
    running = campaign(tmp_path / "run", "start")
    running.config = settings(80, {"novelty": {"similarity": None}})
    running._given = (running._given[0], TwoKernelPolicy())
    running.task = running.task.model_copy(update={"seed_source": TWO})
    return running.run().run


def test_kernels_without_a_history_are_crossed_by_functions(run):
    children = [one for one in run.records() if one.candidate.operator == CrossoverOperator.name]
    assert len(children) >= 3
    for child in children:
        faster, slower = (run.record(parent) for parent in child.candidate.parent_ids)
        assert (faster.speedup or 0) >= (slower.speedup or 0) > 0
        receiver, donor = (run.source(one.candidate.source_sha).text for one in (faster, slower))
        made = {exchanged(receiver, donor, name) for name in exchangeable(receiver, donor)}
        assert run.source(child.candidate.source_sha).text in made
        assert child.candidate.rewrites == faster.candidate.rewrites
