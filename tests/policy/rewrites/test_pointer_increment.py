import pytest

from policy.rewrites.base import RewriteContext, RewriteError
from policy.rewrites.pointer_increment import PointerIncrement, PointerIncrementArgs
from tests.policy.rewrites import kernels
from tests.policy.rewrites.harness import assert_same_meaning, check_rewrite

REWRITE = PointerIncrement()
CONTEXT = RewriteContext()


@pytest.mark.parametrize("name", ["softmax", "matmul"])
def test_carried_pointers_reach_the_same_data(interpreter, name):
    source, setups = kernels.ALL[name]
    assert check_rewrite(interpreter, REWRITE, source, setups)


def test_the_step_is_the_block_times_the_stride():
    (args,) = REWRITE.candidates(kernels.MATMUL, CONTEXT)
    text = REWRITE.apply(kernels.MATMUL, args, CONTEXT)
    assert "        a_ptrs += BLOCK_K * stride_ak\n" in text
    assert "        b_ptrs += BLOCK_K * stride_bk\n" in text
    assert "a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak\n" in text


def test_all_loops_of_a_kernel_can_be_changed(interpreter):
    source = kernels.SOFTMAX
    while candidates := REWRITE.candidates(source, CONTEXT):
        source = REWRITE.apply(source, candidates[0], CONTEXT)
    assert source.count("+= BLOCK\n") == 4
    assert_same_meaning(interpreter, kernels.SOFTMAX, source, kernels.SOFTMAX_SETUPS, exact=True)


@pytest.mark.parametrize(
    "address",
    [
        "x_ptr + row * x_stride + cols * cols",
        "x_ptr + row * x_stride + start * offsets",
        "x_ptr + row * x_stride + cols % n_cols",
    ],
)
def test_addresses_that_are_not_linear_in_the_loop_stay(address):
    loads = "x = tl.load(x_ptr + row * x_stride + cols"
    source = kernels.SOFTMAX.replace(loads, f"x = tl.load({address}")
    # the store of the last loop is linear still
    assert [args.loop for args in REWRITE.candidates(source, CONTEXT)] == [2]
    with pytest.raises(RewriteError, match="linear"):
        REWRITE.apply(source, PointerIncrementArgs(kernel="softmax_kernel", loop=0), CONTEXT)


def test_a_loop_whose_variable_is_changed_stays():
    source = kernels.SOFTMAX.replace(
        "        cols = start + offsets", "        start = start + 0\n        cols = start + offsets"
    )
    assert REWRITE.candidates(source, CONTEXT) == []


def test_a_second_application_is_an_error():
    args = PointerIncrementArgs(kernel="matmul_kernel", loop=0)
    once = REWRITE.apply(kernels.MATMUL, args, CONTEXT)
    assert REWRITE.candidates(once, CONTEXT) == []
    with pytest.raises(RewriteError, match="linear"):
        REWRITE.apply(once, args, CONTEXT)


def test_an_address_over_several_lines_is_kept_together(interpreter):
    source = kernels.SOFTMAX.replace(
        "tl.load(x_ptr + row * x_stride + cols",
        "tl.load(\n            x_ptr\n            + row * x_stride\n            + cols",
    )
    assert check_rewrite(interpreter, REWRITE, source, kernels.SOFTMAX_SETUPS[:2])
