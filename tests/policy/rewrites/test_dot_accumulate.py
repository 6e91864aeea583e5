import pytest

from policy.rewrites.base import RewriteContext, RewriteError
from policy.rewrites.dot_accumulate import DotAccumulate, DotAccumulateArgs
from tests.policy.rewrites import kernels
from tests.policy.rewrites.harness import check_rewrite

REWRITE = DotAccumulate()
CONTEXT = RewriteContext()


def test_the_dot_adds_to_its_accumulator(interpreter):
    (text,) = check_rewrite(interpreter, REWRITE, kernels.MATMUL, kernels.MATMUL_SETUPS)
    assert 'acc = tl.dot(a, b, input_precision="ieee", acc=acc)' in text


def test_a_scaled_accumulator_goes_in_with_its_scale(interpreter):
    source, setups = kernels.SEEDS["attention"]
    rtol, atol = kernels.tolerance_of("attention")
    (text,) = check_rewrite(interpreter, REWRITE, source, setups, kernels.CONTEXTS["attention"], rtol=rtol, atol=atol)
    assert "acc = tl.dot(weights.to(v.dtype), v, acc=acc * shrink[:, None])" in text


def test_a_sum_spelled_out_is_recognised():
    source = kernels.MATMUL.replace("acc += tl.dot(a, b", "acc = acc + tl.dot(a, b")
    assert len(REWRITE.candidates(source, CONTEXT)) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("acc += tl.dot", "acc -= tl.dot"),
        ("dtype=tl.float32)", "dtype=tl.float16)"),
        ('input_precision="ieee")', 'input_precision="ieee", out_dtype=tl.float32)'),
        ("tl.dot(a, b,", "tl.dot(a, b, acc,"),
    ],
)
def test_other_sums_are_left_alone(old, new):
    assert REWRITE.candidates(kernels.MATMUL.replace(old, new), CONTEXT) == []


def test_a_second_application_is_an_error():
    args = DotAccumulateArgs(kernel="matmul_kernel", site=0)
    once = REWRITE.apply(kernels.MATMUL, args, CONTEXT)
    assert REWRITE.candidates(once, CONTEXT) == []
    with pytest.raises(RewriteError, match="no sum number 0"):
        REWRITE.apply(once, args, CONTEXT)
