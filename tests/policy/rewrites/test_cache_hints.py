import pytest

from policy.rewrites.base import RewriteContext, RewriteError
from policy.rewrites.cache_hints import CacheHintArgs, CacheHints
from tests.policy.rewrites import kernels
from tests.policy.rewrites.harness import check_rewrite

REWRITE = CacheHints()
CONTEXT = RewriteContext()


@pytest.mark.parametrize("name", sorted(kernels.ALL))
def test_a_hint_changes_no_result(interpreter, name):
    source, setups = kernels.ALL[name]
    check_rewrite(interpreter, REWRITE, source, setups[:2], limit=6)


def test_every_access_of_every_kernel_can_be_hinted():
    sites = {(args.kernel, args.site) for args in REWRITE.candidates(kernels.TWO_ELEMENTWISE, CONTEXT)}
    assert sites == {("add_kernel", i) for i in range(3)} | {("silu_kernel", i) for i in range(2)}


def test_an_eviction_policy_replaces_a_cache_modifier_and_the_other_way_round():
    def hinted(source, hint):
        return REWRITE.apply(source, CacheHintArgs(kernel="norm", site=0, hint=hint), CONTEXT)

    evicted = hinted(hinted(kernels.LAYER_NORM, ".cg"), "evict_last")
    assert 'eviction_policy="evict_last"' in evicted
    assert "cache_modifier" not in evicted
    assert "eviction_policy" not in hinted(evicted, ".ca")


def test_a_hint_that_is_there_is_no_candidate_and_an_error_to_apply():
    args = CacheHintArgs(kernel="norm", site=0, hint="evict_first")
    hinted = REWRITE.apply(kernels.LAYER_NORM, args, CONTEXT)
    assert args not in REWRITE.candidates(hinted, CONTEXT)
    with pytest.raises(RewriteError, match="as it is"):
        REWRITE.apply(hinted, args, CONTEXT)


def test_a_load_hint_on_a_store_is_refused():
    with pytest.raises(RewriteError, match=r"not legal on tl\.store"):
        REWRITE.apply(kernels.LAYER_NORM, CacheHintArgs(kernel="norm", site=2, hint=".ca"), CONTEXT)


def test_an_access_that_does_not_exist_is_named():
    with pytest.raises(RewriteError, match="number 9"):
        REWRITE.apply(kernels.LAYER_NORM, CacheHintArgs(kernel="norm", site=9, hint=".cg"), CONTEXT)


def test_only_the_hinted_call_differs():
    args = CacheHintArgs(kernel="softmax_kernel", site=0, hint="evict_last")
    changed = REWRITE.apply(kernels.SOFTMAX, args, CONTEXT)
    before, after = kernels.SOFTMAX.splitlines(), changed.splitlines()
    assert sum(old != new for old, new in zip(before, after, strict=True)) == 1


def test_an_unknown_hint_is_an_error_that_names_the_field():
    with pytest.raises(RewriteError, match="cache_hints: hint"):
        REWRITE.parse_args({"kernel": "norm", "site": 0, "hint": "keep"})
