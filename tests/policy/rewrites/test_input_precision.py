import pytest

from policy.rewrites.base import RewriteContext, RewriteError
from policy.rewrites.input_precision import InputPrecision, InputPrecisionArgs
from tests.policy.rewrites import kernels
from tests.policy.rewrites.harness import check_rewrite

REWRITE = InputPrecision()
LOOSE = RewriteContext(input_precisions=("ieee", "tf32", "tf32x3"))


def test_a_precision_keeps_the_product(interpreter):
    # The interpreter multiplies in float32 whatever the precision: this shows that the call stays well-formed.
    found = check_rewrite(interpreter, REWRITE, kernels.MATMUL, kernels.MATMUL_SETUPS[:2], LOOSE, rtol=1e-3, atol=1e-3)
    assert [text.count('"tf32"') + 2 * text.count('"tf32x3"') for text in found] == [1, 2]


def test_only_what_the_task_allows_is_offered_or_applied():
    assert REWRITE.candidates(kernels.MATMUL, RewriteContext()) == []
    args = InputPrecisionArgs(kernel="matmul_kernel", site=0, precision="tf32")
    with pytest.raises(RewriteError, match="allowed: ieee"):
        REWRITE.apply(kernels.MATMUL, args, RewriteContext())


def test_it_says_nothing_about_narrow_types():
    assert REWRITE.candidates(kernels.MATMUL, LOOSE.model_copy(update={"dtype": "float16"})) == []


def test_the_old_spelling_gives_way():
    source = kernels.MATMUL.replace('input_precision="ieee"', "allow_tf32=False")
    args = InputPrecisionArgs(kernel="matmul_kernel", site=0, precision="tf32x3")
    text = REWRITE.apply(source, args, LOOSE)
    assert "allow_tf32" not in text
    assert 'tl.dot(a, b, input_precision="tf32x3")' in text


def test_the_precision_in_use_is_no_change():
    args = InputPrecisionArgs(kernel="matmul_kernel", site=0, precision="ieee")
    assert args not in REWRITE.candidates(kernels.MATMUL, LOOSE)
    with pytest.raises(RewriteError, match="as it is"):
        REWRITE.apply(kernels.MATMUL, args, LOOSE)
