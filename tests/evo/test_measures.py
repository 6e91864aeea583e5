"""Descriptors tell kinds of kernels apart, and rewrites move a kernel between them."""

from __future__ import annotations

import ast

import pytest

from evaluator.task import list_tasks, load_task
from evo.measures import (
    CELLS,
    DESCRIPTORS,
    WORDS,
    cell_of,
    coverage,
    kernel_count,
    kernels_of,
    load_path,
    occupancy_tercile,
    passes,
    program_mapping,
    syntax_words,
)
from policy.rewrites.base import RewriteContext
from policy.rewrites.catalogue import catalogue
from policy.rule_policy import BY_BOTTLENECK
from tests.evo import fakes

SMALL = RewriteContext(shape_params=({"M": 64, "N": 512},))


def seed(task):
    return load_task(task).seed_source


def rewritten(task, name):
    rewrite = catalogue()[name]
    return rewrite.apply(seed(task), rewrite.candidates(seed(task), SMALL)[0], SMALL)


@pytest.mark.parametrize(
    ("source", "mapping"),
    [
        (seed("softmax"), "1d"),
        (seed("matmul"), "2d"),
        (rewritten("matmul", "grouped_order"), "grouped"),
        (rewritten("softmax", "persistent_grid"), "persistent"),
        (rewritten("softmax", "rows_per_program"), "1d"),
        (rewritten("sum_reduction", "split_reduction"), "2d"),
    ],
)
def test_how_programs_map_to_work_is_read_off_the_source(source, mapping):
    assert program_mapping(kernels_of(ast.parse(source))) == mapping


@pytest.mark.parametrize(
    ("source", "count"),
    [
        (seed("softmax"), "multi"),
        (seed("sum_reduction"), "single"),
        (seed("swiglu"), "whole"),
        (rewritten("softmax", "whole_row"), "whole"),
    ],
)
def test_passes_over_memory_are_counted(source, count):
    assert passes(kernels_of(ast.parse(source))) == count


def test_the_load_path_is_read_off_the_calls():
    text = "import triton\n@triton.jit\ndef k(p):\n    {}\n"
    assert load_path(kernels_of(ast.parse(text.format("tl.load(p)")))) == "pointer"
    assert load_path(kernels_of(ast.parse(text.format("tl.load(tl.make_block_ptr(p))")))) == "block_pointer"
    assert load_path(kernels_of(ast.parse(text.format("tl.make_tensor_descriptor(p)")))) == "descriptor"


def test_a_cell_has_a_word_for_every_descriptor():
    evaluation = fakes.passed(fakes.KernelSource(text=fakes.SEED), 0.5, 1.0)
    cell = cell_of(syntax_words(fakes.SEED), evaluation)
    assert dict(zip(DESCRIPTORS, cell, strict=True)) == {
        "bottleneck": "dram",
        "programs": "1d",
        "passes": "whole",
        "loads": "pointer",
        "occupancy": "middle",
        "kernels": "1",
    }
    assert cell_of(syntax_words(fakes.SEED), evaluation.model_copy(update={"profile": None}))[0] == "unknown"


@pytest.mark.parametrize(("milliseconds", "tercile"), [(0.1, "low"), (0.5, "middle"), (1.0, "high")])
def test_occupancy_falls_into_terciles(milliseconds, tercile):
    profile = fakes.passed(fakes.KernelSource(text=fakes.SEED), milliseconds, 1.0).profile
    assert occupancy_tercile(profile) == tercile
    assert kernel_count(profile) == "1"


def test_coverage_counts_cells_in_which_everything_is_known():
    cell = ("dram", "1d", "single", "pointer", "low", "1")
    assert CELLS == 1944
    assert coverage([]) == 0
    assert coverage([cell, (*cell[:-1], "2"), ("unknown", *cell[1:])]) == pytest.approx(2 / CELLS)


@pytest.mark.parametrize("task", list_tasks())
def test_every_seed_lies_in_cells_that_coverage_knows(task):
    tree = kernels_of(ast.parse(seed(task)))
    assert program_mapping(tree) in WORDS["programs"]
    assert passes(tree) in WORDS["passes"]
    assert load_path(tree) in WORDS["loads"]


def test_the_bottlenecks_are_those_that_the_rule_policy_knows():
    assert set(WORDS["bottleneck"]) == set(BY_BOTTLENECK)
