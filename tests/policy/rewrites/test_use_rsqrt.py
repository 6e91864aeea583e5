import pytest

from policy.rewrites.base import RewriteContext, RewriteError
from policy.rewrites.use_rsqrt import UseRsqrt, UseRsqrtArgs
from tests.policy.rewrites import kernels
from tests.policy.rewrites.harness import check_rewrite

REWRITE = UseRsqrt()
CONTEXT = RewriteContext()


def test_one_over_a_root_becomes_a_reciprocal_root(interpreter):
    (text,) = check_rewrite(interpreter, REWRITE, kernels.LAYER_NORM, kernels.LAYER_NORM_SETUPS)
    assert "rstd = tl.rsqrt(var + eps)" in text


def test_a_value_over_a_root_becomes_a_product(interpreter):
    source = kernels.LAYER_NORM.replace("rstd = 1.0 / tl.sqrt(var + eps)", "rstd = 1.0").replace(
        "centred * rstd * w", "centred / tl.sqrt(var + eps) * w"
    )
    (text,) = check_rewrite(interpreter, REWRITE, source, kernels.LAYER_NORM_SETUPS)
    assert "centred * tl.rsqrt(var + eps) * w" in text


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_the_shipped_norms_keep_their_results(interpreter, name):
    source, setups = kernels.SEEDS[name]
    rtol, atol = kernels.tolerance_of(name)
    assert check_rewrite(interpreter, REWRITE, source, setups, kernels.CONTEXTS[name], rtol=rtol, atol=atol)


def test_roots_in_numerators_stay():
    source = kernels.LAYER_NORM.replace("1.0 / tl.sqrt(var + eps)", "tl.sqrt(var + eps) / 2.0")
    assert REWRITE.candidates(source, CONTEXT) == []


def test_a_second_application_is_an_error():
    args = UseRsqrtArgs(kernel="norm", site=0)
    once = REWRITE.apply(kernels.LAYER_NORM, args, CONTEXT)
    with pytest.raises(RewriteError, match="no division number 0"):
        REWRITE.apply(once, args, CONTEXT)
