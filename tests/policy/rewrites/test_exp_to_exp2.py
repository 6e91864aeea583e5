import pytest

from policy.rewrites.base import RewriteContext, RewriteError
from policy.rewrites.exp_to_exp2 import ExpToExp2, ExpToExp2Args
from tests.policy.rewrites import kernels
from tests.policy.rewrites.harness import check_rewrite

REWRITE = ExpToExp2()
CONTEXT = RewriteContext()


@pytest.mark.parametrize("name", ["softmax", "two_elementwise"])
def test_base_two_gives_the_same_results(interpreter, name):
    source, setups = kernels.ALL[name]
    assert check_rewrite(interpreter, REWRITE, source, setups)


def test_folding_is_offered_for_differences_only():
    folds = [args.fold for args in REWRITE.candidates(kernels.TWO_ELEMENTWISE, CONTEXT)]
    assert folds == [False]
    assert any(args.fold for args in REWRITE.candidates(kernels.SOFTMAX, CONTEXT))


def test_a_folded_difference_scales_both_sides():
    source = kernels.SOFTMAX
    text = REWRITE.apply(source, ExpToExp2Args(kernel="softmax_kernel", site=1, fold=True), CONTEXT)
    assert "tl.exp2(x * 1.4426950408889634 - row_max * 1.4426950408889634)" in text


def test_all_exponentials_of_a_kernel_can_be_changed_one_after_the_other():
    source = kernels.SOFTMAX
    for _ in range(2):
        source = REWRITE.apply(source, ExpToExp2Args(kernel="softmax_kernel", site=0), CONTEXT)
    assert REWRITE.candidates(source, CONTEXT) == []
    with pytest.raises(RewriteError, match=r"no tl\.exp"):
        REWRITE.apply(source, ExpToExp2Args(kernel="softmax_kernel", site=0), CONTEXT)


def test_an_argument_with_a_lower_precedence_is_parenthesised():
    text = REWRITE.apply(kernels.TWO_ELEMENTWISE, ExpToExp2Args(kernel="silu_kernel", site=0), CONTEXT)
    assert "tl.exp2((-x) * 1.4426950408889634)" in text


def test_kernels_without_an_exponential_are_left_alone():
    assert REWRITE.candidates(kernels.MATMUL, CONTEXT) == []
