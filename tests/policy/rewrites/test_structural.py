"""Rewrites that change a kernel's structure keep what it computes, on shapes with 1, primes and ragged ends."""

from __future__ import annotations

import pytest

from policy.rewrites.accumulate_blockwise import AccumulateBlockwise
from policy.rewrites.base import RewriteContext, RewriteError
from policy.rewrites.catalogue import catalogue
from policy.rewrites.grouped_order import GroupedOrder, GroupedOrderArgs
from policy.rewrites.online_reduction import OnlineReduction, OnlineReductionArgs
from policy.rewrites.program_loops import PersistentGrid, PersistentGridArgs, RowsPerProgram, RowsPerProgramArgs
from policy.rewrites.row_loop import RowLoop, RowLoopArgs
from policy.rewrites.split_reduction import SplitReduction, SplitReductionArgs
from policy.rewrites.whole_row import WholeRow, WholeRowArgs
from tests.policy.rewrites import kernels
from tests.policy.rewrites.harness import assert_same_meaning, check_rewrite, setup_of

SMALL = RewriteContext()


def check(interpreter, rewrite, name):
    source, setups = kernels.SEEDS.get(name) or kernels.ALL[name]
    rtol, atol = kernels.tolerance_of(name) if name in kernels.SEEDS else (1e-4, 1e-5)
    return check_rewrite(
        interpreter, rewrite, source, setups, kernels.CONTEXTS.get(name, SMALL), limit=3, rtol=rtol, atol=atol
    )


WHERE = [
    *(("whole_row", name) for name in ("softmax", "layer_norm", "rms_norm")),
    *(("online_reduction", name) for name in ("softmax", "cross_entropy")),
    *(
        ("accumulate_blockwise", name)
        for name in ("softmax", "layer_norm", "rms_norm", "sum_reduction", "cross_entropy")
    ),
    *(("rows_per_program", name) for name in ("softmax", "layer_norm", "swiglu", "sum_reduction", "cross_entropy")),
    *(("persistent_grid", name) for name in ("softmax", "rms_norm", "swiglu", "cross_entropy")),
    ("grouped_order", "matmul"),
    ("split_reduction", "sum_reduction"),
]


@pytest.mark.parametrize(("rewrite", "seed"), WHERE)
def test_a_structural_rewrite_keeps_the_meaning_of_the_seed(interpreter, rewrite, seed):
    assert check(interpreter, catalogue()[rewrite], seed)


@pytest.mark.parametrize("rewrite", ["rows_per_program", "persistent_grid", "whole_row", "accumulate_blockwise"])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "two_elementwise"])
def test_other_peoples_kernels_are_rewritten_right_or_left_alone(interpreter, rewrite, name):
    source, setups = kernels.ALL[name]
    check_rewrite(interpreter, catalogue()[rewrite], source, setups, SMALL, limit=2, rtol=1e-4, atol=1e-5)


def test_the_whole_row_is_loaded_once_however_many_passes_there_were():
    source, _ = kernels.SEEDS["softmax"]
    text = WholeRow().apply(source, WholeRowArgs(kernel="softmax_kernel"), kernels.CONTEXTS["softmax"])
    assert text.count("tl.load") == 1
    assert "for " not in text.split("class ModelNew")[0].split("@triton.jit")[1]
    assert "BLOCK_SIZE=triton.next_power_of_2(n_cols)" in text
    assert "BLOCK_SIZE = 256" not in text


def test_rows_too_long_for_registers_are_not_held_whole():
    source, _ = kernels.SEEDS["cross_entropy"]
    assert WholeRow().candidates(source, kernels.CONTEXTS["cross_entropy"]) == []
    with pytest.raises(RewriteError, match="do not fit into registers"):
        WholeRow().apply(source, WholeRowArgs(kernel="cross_entropy_kernel"), kernels.CONTEXTS["cross_entropy"])


def test_two_passes_over_the_row_become_one():
    source, _ = kernels.SEEDS["softmax"]
    text = OnlineReduction().apply(source, OnlineReductionArgs(kernel="softmax_kernel"), SMALL)
    assert source.count("for start in") == 3
    assert text.count("for start in") == 2
    with pytest.raises(RewriteError, match="no maximum pass"):
        OnlineReduction().apply(text, OnlineReductionArgs(kernel="softmax_kernel"), SMALL)


def test_an_online_softmax_survives_rows_that_begin_with_minus_infinity(interpreter):
    source, _ = kernels.SEEDS["softmax"]
    rewritten = OnlineReduction().apply(source, OnlineReductionArgs(kernel="softmax_kernel"), SMALL)
    holes = setup_of("torch.cat([torch.full((3, 300), -float('inf')), torch.randn(3, 300)], dim=1)")
    assert_same_meaning(interpreter, source, rewritten, [holes], exact=False, rtol=1e-4, atol=1e-6)


def test_a_row_walked_in_blocks_is_the_inverse_of_a_row_held_whole(interpreter):
    for name in ("softmax", "layer_norm", "rms_norm"):
        source, setups = kernels.SEEDS[name]
        kernel = f"{name}_kernel"
        whole = WholeRow().apply(source, WholeRowArgs(kernel=kernel), kernels.CONTEXTS[name])
        assert RowLoop().candidates(source, SMALL) == []
        again = RowLoop().apply(whole, RowLoopArgs(kernel=kernel, block=256), SMALL)
        body = again.split("@triton.jit")[1].split("class ModelNew")[0]
        assert body == source.split("@triton.jit")[1].split("class ModelNew")[0]
        rtol, atol = kernels.tolerance_of(name)
        assert_same_meaning(interpreter, whole, again, setups, exact=False, rtol=rtol, atol=atol)


def test_nested_reductions_of_a_straight_kernel_get_passes_of_their_own(interpreter):
    source, setups = kernels.SEEDS["rms_norm"]
    whole = WholeRow().apply(source, WholeRowArgs(kernel="rms_norm_kernel"), kernels.CONTEXTS["rms_norm"])
    nested = whole.replace("    squares = tl.sum(x * x, axis=0)\n", "").replace(
        "tl.sqrt(squares / n_cols", "tl.sqrt(tl.sum(x * x, axis=0) / n_cols"
    )
    assert nested.count("tl.sum") == 1
    looped = RowLoop().apply(nested, RowLoopArgs(kernel="rms_norm_kernel", block=64), SMALL)
    assert looped.count("for start in") == 2
    assert_same_meaning(interpreter, nested, looped, setups, exact=False, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("block", [8, 100, 0])
def test_a_block_that_arange_refuses_is_refused(block):
    source, _ = kernels.SEEDS["softmax"]
    whole = WholeRow().apply(source, WholeRowArgs(kernel="softmax_kernel"), kernels.CONTEXTS["softmax"])
    with pytest.raises(RewriteError, match="no power of two"):
        RowLoop().apply(whole, RowLoopArgs(kernel="softmax_kernel", block=block), SMALL)


def test_several_rows_need_fewer_programs_and_the_last_program_may_have_fewer_rows():
    source, _ = kernels.SEEDS["softmax"]
    text = RowsPerProgram().apply(source, RowsPerProgramArgs(kernel="softmax_kernel", rows=4), SMALL)
    assert "grid = (triton.cdiv(n_rows, ROWS_PER_PROGRAM),)" in text
    assert "tl.minimum(pid_rows * ROWS_PER_PROGRAM + ROWS_PER_PROGRAM, n_programs)" in text


def test_persistent_programs_never_outnumber_the_rows(interpreter):
    source, setups = kernels.SEEDS["softmax"]
    args = PersistentGridArgs(kernel="softmax_kernel", programs=2)
    text = PersistentGrid().apply(source, args, SMALL)
    assert "grid = (min(n_rows, NUM_PROGRAMS),)" in text
    assert_same_meaning(interpreter, source, text, setups, exact=True)


def test_a_two_dimensional_grid_has_no_rows_to_gather():
    source, _ = kernels.SEEDS["matmul"]
    assert RowsPerProgram().candidates(source, SMALL) == []
    with pytest.raises(RewriteError, match="exactly one program id"):
        RowsPerProgram().apply(source, RowsPerProgramArgs(kernel="matmul_kernel"), SMALL)


def test_grouped_order_visits_every_tile_once_whatever_the_group(interpreter):
    source, setups = kernels.ALL["matmul"]
    for group in (2, 8):
        args = GroupedOrderArgs(kernel="matmul_kernel", group=group)
        assert_same_meaning(interpreter, source, GroupedOrder().apply(source, args, SMALL), setups, exact=True)


def test_a_grouped_kernel_is_not_grouped_again():
    source, _ = kernels.SEEDS["matmul"]
    once = GroupedOrder().apply(source, GroupedOrderArgs(kernel="matmul_kernel"), SMALL)
    assert GroupedOrder().candidates(once, SMALL) == []


def test_a_split_row_is_combined_by_a_second_kernel_without_atomics():
    source, _ = kernels.SEEDS["sum_reduction"]
    text = SplitReduction().apply(source, SplitReductionArgs(kernel="sum_kernel", splits=4), SMALL)
    assert "atomic" not in text
    assert "sum_kernel_combine[(n_rows,)](partial, out, SPLIT=SPLIT, num_warps=1)" in text
    assert SplitReduction().candidates(text, SMALL) == []


def test_structural_rewrites_compose(interpreter):
    chains = [
        ("softmax", [WholeRow(), RowsPerProgram()]),
        ("softmax", [OnlineReduction(), PersistentGrid()]),
        ("softmax", [RowsPerProgram(), WholeRow()]),
        ("sum_reduction", [AccumulateBlockwise(), PersistentGrid()]),
        ("cross_entropy", [OnlineReduction(), RowsPerProgram()]),
        ("layer_norm", [AccumulateBlockwise(), WholeRow()]),
    ]
    for name, chain in chains:
        source, setups = kernels.SEEDS[name]
        rewritten = source
        for rewrite in chain:
            candidates = rewrite.candidates(rewritten, kernels.CONTEXTS[name])
            if not candidates:
                assert rewrite.name == "whole_row", (name, rewrite.name)
                break
            rewritten = rewrite.apply(rewritten, candidates[0], kernels.CONTEXTS[name])
        rtol, atol = kernels.tolerance_of(name)
        assert_same_meaning(interpreter, source, rewritten, setups, exact=False, rtol=rtol, atol=atol)


def test_comments_survive_a_structural_rewrite():
    source, _ = kernels.SEEDS["softmax"]
    noted = source.replace("        y = tl.exp", "        # the result\n        y = tl.exp")
    text = RowsPerProgram().apply(noted, RowsPerProgramArgs(kernel="softmax_kernel"), SMALL)
    assert "# the result" in text
