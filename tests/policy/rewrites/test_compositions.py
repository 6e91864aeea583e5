"""Pairs of rewrites of which the second must know what the first relied on."""

import pytest

from policy.rewrites import RewriteContext, RewriteError, rewrite_named
from tests.policy.rewrites import kernels
from tests.policy.rewrites.harness import assert_same_meaning, setup_of

CONTEXT = RewriteContext()


def first(name, source):
    rewrite = rewrite_named(name)
    return rewrite.apply(source, rewrite.candidates(source, CONTEXT)[0], CONTEXT)


@pytest.mark.parametrize(
    ("second", "source"), [("row_loop", kernels.LAYER_NORM), ("whole_row", kernels.SEEDS["softmax"][0])]
)
def test_masks_that_were_dropped_for_one_block_forbid_another_block(second, source):
    rewrite = rewrite_named(second)
    (args, *_) = rewrite.candidates(source, CONTEXT)
    unmasked = first("drop_mask", source)
    assert rewrite.candidates(unmasked, CONTEXT) == []
    with pytest.raises(RewriteError, match="present block only"):
        rewrite.apply(unmasked, args, CONTEXT)


def test_a_row_with_carried_pointers_is_not_split():
    source = kernels.SEEDS["sum_reduction"][0]
    rewrite = rewrite_named("split_reduction")
    (args, *_) = rewrite.candidates(source, CONTEXT)
    with pytest.raises(RewriteError, match="carries more"):
        rewrite.apply(first("pointer_increment", source), args, CONTEXT)


@pytest.mark.parametrize("again", ["drop_mask", "pointer_increment", "cache_hints", "loop_range_options"])
@pytest.mark.parametrize("structural", ["rows_per_program", "persistent_grid", "split_reduction"])
def test_local_rewrites_work_on_what_structural_ones_leave(interpreter, structural, again):
    # Rows of several blocks: multiples of the block, and not.
    source = kernels.SEEDS["sum_reduction"][0]
    changed = first(structural, source)
    setups = [setup_of(f"torch.randn({shape})") for shape in ("1, 1", "5, 512", "3, 700", "2, 1024")]
    rewrite = rewrite_named(again)
    for args in rewrite.candidates(changed, CONTEXT)[:2]:
        text = rewrite.apply(changed, args, CONTEXT)
        assert_same_meaning(interpreter, source, text, setups, exact=False, rtol=1e-4, atol=1e-4)
