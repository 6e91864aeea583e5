import pytest

from policy.rewrites.base import RewriteContext, RewriteError
from policy.rewrites.fuse_elementwise import FuseElementwise, FuseElementwiseArgs
from tests.policy.rewrites import kernels
from tests.policy.rewrites.harness import assert_same_meaning, check_rewrite, setup_of

REWRITE = FuseElementwise()
CONTEXT = RewriteContext()
ARGS = FuseElementwiseArgs(first="add_kernel", second="silu_kernel")


def test_two_kernels_become_one_and_the_buffer_goes(interpreter):
    (text,) = check_rewrite(interpreter, REWRITE, kernels.TWO_ELEMENTWISE, kernels.ELEMENTWISE_SETUPS)
    assert text.count("@triton.jit") == 1
    assert text.count("[grid](") == 1
    assert text.count("empty_like") == 1
    assert "# x * sigmoid(x)" in text


def test_the_value_is_rounded_as_the_buffer_rounded_it(interpreter):
    setups = [
        setup_of(f"torch.randn({shape}).to(torch.{dtype})", f"torch.randn({shape}).to(torch.{dtype})")
        for shape, dtype in (("77", "bfloat16"), ("130", "float16"))
    ]
    source = (
        kernels.TWO_ELEMENTWISE.replace("mask=mask)\n", "mask=mask).to(tl.float32)\n")
        .replace("x + y, mask=mask).to(tl.float32)", "x + y, mask=mask)")
        .replace("tl.exp(-x)), mask=mask).to(tl.float32)", "tl.exp(-x)), mask=mask)")
    )
    text = REWRITE.apply(source, ARGS, CONTEXT)
    assert_same_meaning(interpreter, source, text, setups, exact=True)


def test_names_that_meet_are_kept_apart(interpreter):
    # Both kernels use x and out_ptr for different things, and the buffer is named like a local of both.
    source = kernels.TWO_ELEMENTWISE.replace("total", "pid")
    text = REWRITE.apply(source, ARGS, CONTEXT)
    assert_same_meaning(interpreter, source, text, kernels.ELEMENTWISE_SETUPS, exact=True)


def test_an_output_shaped_after_the_buffer_is_shaped_after_its_model(interpreter):
    source = kernels.TWO_ELEMENTWISE.replace("out = torch.empty_like(x)", "out = torch.empty_like(total)")
    text = REWRITE.apply(source, ARGS, CONTEXT)
    assert "total)" not in text.split("class ModelNew")[1]
    assert_same_meaning(interpreter, source, text, kernels.ELEMENTWISE_SETUPS, exact=True)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("return out", "return out + total", "used elsewhere"),
        ("silu_kernel[grid]", "silu_kernel[(triton.cdiv(n, BLOCK), 1)]", "different grids"),
        ("x = tl.load(in_ptr + offsets, mask=mask)", "x = tl.load(in_ptr + offsets // 2, mask=mask)", "address"),
        (
            "x = tl.load(in_ptr + offsets, mask=mask)",
            "x = tl.load(in_ptr + offsets, mask=offsets < n - 1, other=0.0)",
            "address",
        ),
        ("x / (1.0 + tl.exp(-x))", "x / tl.sum(tl.exp(x), axis=0)", "not element-wise"),
        ("        silu_kernel[grid]", "        x.add_(1)\n        silu_kernel[grid]", "happens between"),
        ("        silu_kernel[grid]", "        n = n - 1\n        silu_kernel[grid]", "changes before"),
        (
            "        silu_kernel[grid](total, out, n, BLOCK=BLOCK)",
            "        silu_kernel[grid](total, out, n, BLOCK=BLOCK)\n        silu_kernel[grid](x, out, n, BLOCK=BLOCK)",
            "exactly once",
        ),
    ],
)
def test_what_stands_in_the_way_is_said(old, new, reason):
    source = kernels.TWO_ELEMENTWISE.replace(old, new)
    assert source != kernels.TWO_ELEMENTWISE
    assert REWRITE.candidates(source, CONTEXT) == []
    with pytest.raises(RewriteError, match=reason):
        REWRITE.apply(source, ARGS, CONTEXT)


def test_single_kernels_have_no_candidates():
    assert all(REWRITE.candidates(source, CONTEXT) == [] for source, _ in kernels.SEEDS.values())
