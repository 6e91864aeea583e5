import pytest

from policy.rewrites.base import RewriteContext, RewriteError
from policy.rewrites.drop_mask import DropMask, DropMaskArgs
from tests.policy.rewrites import kernels
from tests.policy.rewrites.harness import assert_same_meaning, check_rewrite

REWRITE = DropMask()
CONTEXT = RewriteContext()


@pytest.mark.parametrize("name", sorted(kernels.ALL))
def test_even_and_odd_sizes_keep_their_results(interpreter, name):
    source, setups = kernels.ALL[name]
    assert check_rewrite(interpreter, REWRITE, source, setups)


def test_the_flag_is_computed_by_the_launch():
    text = REWRITE.apply(kernels.SOFTMAX, REWRITE.candidates(kernels.SOFTMAX, CONTEXT)[0], CONTEXT)
    assert "EVEN_N_COLS: tl.constexpr" in text
    assert "EVEN_N_COLS=n_cols % BLOCK_SIZE == 0" in text
    assert text.count("mask=None if EVEN_N_COLS else") == 4


def test_one_block_that_covers_the_row_is_tested_by_size():
    text = REWRITE.apply(kernels.LAYER_NORM, REWRITE.candidates(kernels.LAYER_NORM, CONTEXT)[0], CONTEXT)
    assert "EVEN_N=n >= t.next_power_of_2(n)" in text


def test_conditions_on_other_axes_stay():
    text = REWRITE.apply(kernels.MATMUL, DropMaskArgs(kernel="matmul_kernel", size="K", block="BLOCK_K"), CONTEXT)
    assert "mask=(offs_m[:, None] < M) if EVEN_K else (offs_m[:, None] < M) & (ks[None, :] < K)" in text


def test_all_axes_can_be_dropped_one_after_the_other(interpreter):
    source, dropped = kernels.MATMUL, []
    while candidates := REWRITE.candidates(source, CONTEXT):
        dropped.append(candidates[0].size)
        source = REWRITE.apply(source, candidates[0], CONTEXT)
    assert sorted(dropped) == ["K", "M", "N"]
    assert_same_meaning(interpreter, kernels.MATMUL, source, kernels.MATMUL_SETUPS, exact=True)


def test_a_dropped_mask_is_not_dropped_again():
    args = DropMaskArgs(kernel="softmax_kernel", size="n_cols", block="BLOCK")
    once = REWRITE.apply(kernels.SOFTMAX, args, CONTEXT)
    assert REWRITE.candidates(once, CONTEXT) == []
    with pytest.raises(RewriteError, match="provably"):
        REWRITE.apply(once, args, CONTEXT)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("range(0, n_cols, BLOCK)", "range(1, n_cols, BLOCK)"),
        ("range(0, n_cols, BLOCK)", "range(0, n_cols + 1, BLOCK)"),
        ("range(0, n_cols, BLOCK)", "range(0, n_cols, 16)"),
        ("cols = start + offsets", "cols = start + offsets + 1"),
    ],
)
def test_an_index_that_may_pass_the_end_keeps_its_mask(old, new):
    assert REWRITE.candidates(kernels.SOFTMAX.replace(old, new), CONTEXT) == []


def test_a_grid_that_is_not_the_ceiling_of_size_over_block_keeps_masks():
    source = kernels.TWO_ELEMENTWISE.replace("triton.cdiv(n, BLOCK)", "triton.cdiv(n, BLOCK) + 1")
    assert REWRITE.candidates(source, CONTEXT) == []


def test_a_grid_given_as_a_lambda_over_the_constants_is_understood(interpreter):
    source = kernels.TWO_ELEMENTWISE.replace(
        "grid = (triton.cdiv(n, BLOCK),)", 'grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)'
    )
    assert len(check_rewrite(interpreter, REWRITE, source, kernels.ELEMENTWISE_SETUPS)) == 2


def test_a_kernel_with_two_launches_gets_the_flag_on_both(interpreter):
    source = kernels.TWO_ELEMENTWISE.replace(
        "        silu_kernel[grid](total, out, n, BLOCK=BLOCK)",
        "        add_kernel[grid](total, y, out, n, BLOCK=BLOCK)",
    )
    args = DropMaskArgs(kernel="add_kernel", size="n", block="BLOCK")
    text = REWRITE.apply(source, args, CONTEXT)
    assert text.count("EVEN_N=n % BLOCK == 0") == 2
    assert_same_meaning(interpreter, source, text, kernels.ELEMENTWISE_SETUPS, exact=True)


def test_a_kernel_that_another_kernel_calls_is_left_alone():
    source = kernels.TWO_ELEMENTWISE.replace(
        "    # x * sigmoid(x)\n", "    add_kernel(in_ptr, in_ptr, out_ptr, n, BLOCK)\n"
    )
    assert {args.kernel for args in REWRITE.candidates(source, CONTEXT)} == {"silu_kernel"}


def test_a_kernel_with_defaults_gets_a_flag_with_a_default(interpreter):
    source = kernels.LAYER_NORM.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr = 64")
    (text,) = check_rewrite(interpreter, REWRITE, source, kernels.LAYER_NORM_SETUPS)
    assert "EVEN_N: tl.constexpr = False" in text


def test_a_loop_up_to_the_smaller_of_two_sizes_is_understood(interpreter):
    source = kernels.SOFTMAX.replace("    offsets = tl", "    last = tl.minimum(n_cols, 64)\n    offsets = tl").replace(
        "range(0, n_cols, BLOCK)", "range(0, last, BLOCK)"
    )
    assert check_rewrite(interpreter, REWRITE, source, kernels.SOFTMAX_SETUPS)
