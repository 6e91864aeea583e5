import pytest

from policy.rewrites.base import RewriteContext, RewriteError
from policy.rewrites.reciprocal_multiply import ReciprocalMultiply, ReciprocalMultiplyArgs
from tests.policy.rewrites import kernels
from tests.policy.rewrites.harness import check_rewrite

REWRITE = ReciprocalMultiply()
CONTEXT = RewriteContext()


def test_softmax_divides_once_per_row(interpreter):
    (changed,) = check_rewrite(interpreter, REWRITE, kernels.SOFTMAX, kernels.SOFTMAX_SETUPS)
    lines = changed.splitlines()
    hoisted = next(i for i, line in enumerate(lines) if "inv_denominator = 1.0 / denominator" in line)
    assert lines[hoisted] == "    inv_denominator = 1.0 / denominator"
    assert lines[hoisted + 1].startswith("    for start in range")
    assert "* inv_denominator  # normalise" in changed


@pytest.mark.parametrize("name", ["softmax", "attention"])
def test_the_shipped_seeds_that_divide_by_a_row_value_keep_their_results(interpreter, name):
    source, setups = kernels.SEEDS[name]
    rtol, atol = kernels.tolerance_of(name)
    found = check_rewrite(interpreter, REWRITE, source, setups, kernels.CONTEXTS[name], rtol=rtol, atol=atol)
    assert found


def test_a_broadcast_divisor_keeps_its_axes():
    source = kernels.SEEDS["attention"][0]
    args = REWRITE.candidates(source, CONTEXT)[0]
    assert "acc * inv_row_sum[:, None]" in REWRITE.apply(source, args, CONTEXT)


def test_scalars_and_element_wise_quotients_are_no_candidates():
    # mean = sum / n divides a scalar, silu divides by a block: a reciprocal would save nothing.
    assert REWRITE.candidates(kernels.LAYER_NORM, CONTEXT) == []
    assert REWRITE.candidates(kernels.TWO_ELEMENTWISE, CONTEXT) == []


def test_a_divisor_that_changes_in_the_loop_is_inverted_inside():
    source = kernels.SOFTMAX.replace(
        "        mask = cols < n_cols\n", "        mask = cols < n_cols\n        denominator = denominator + 0.0\n"
    )
    args = ReciprocalMultiplyArgs(kernel="softmax_kernel", site=0)
    text = REWRITE.apply(source, args, CONTEXT)
    assert "        inv_denominator = 1.0 / denominator" in text


def test_a_second_application_finds_nothing():
    args = ReciprocalMultiplyArgs(kernel="softmax_kernel", site=0)
    once = REWRITE.apply(kernels.SOFTMAX, args, CONTEXT)
    assert REWRITE.candidates(once, CONTEXT) == []
    with pytest.raises(RewriteError, match="no division 0"):
        REWRITE.apply(once, args, CONTEXT)
