import pytest

from policy.rewrites.alignment_hints import AlignmentHintArgs, AlignmentHints
from policy.rewrites.base import RewriteContext, RewriteError
from tests.policy.rewrites import kernels
from tests.policy.rewrites.harness import check_rewrite

REWRITE = AlignmentHints()
CONTEXT = RewriteContext()


@pytest.mark.parametrize("name", sorted(kernels.ALL))
def test_hints_change_no_result(interpreter, name):
    source, setups = kernels.ALL[name]
    assert check_rewrite(interpreter, REWRITE, source, setups[:2], limit=4)


def test_a_block_of_indices_is_declared_contiguous_and_aligned():
    args = AlignmentHintArgs(kernel="add_kernel", hint="contiguous", target="offsets")
    text = REWRITE.apply(kernels.TWO_ELEMENTWISE, args, CONTEXT)
    assert "tl.max_contiguous(tl.multiple_of(pid * BLOCK + tl.arange(0, BLOCK), BLOCK), BLOCK)" in text


def test_sizes_and_strides_of_tensors_are_assumed_non_negative_at_the_start():
    args = AlignmentHintArgs(kernel="softmax_kernel", hint="assume", target="x_stride")
    text = REWRITE.apply(kernels.SOFTMAX, args, CONTEXT)
    assert '"""One program per row."""\n    tl.assume(x_stride >= 0)\n' in text


def test_a_parameter_of_unknown_sign_gets_no_assumption():
    targets = {args.target for args in REWRITE.candidates(kernels.LAYER_NORM, CONTEXT)}
    assert targets == {"row"}


def test_an_index_that_is_not_aligned_to_its_block_gets_no_hint():
    source = kernels.TWO_ELEMENTWISE.replace("pid * BLOCK + tl", "pid * 3 + tl")
    assert {args.hint for args in REWRITE.candidates(source, CONTEXT)} == {"assume"}


def test_a_loop_that_starts_elsewhere_is_not_aligned():
    source = kernels.SOFTMAX.replace("range(0, n_cols, BLOCK)", "range(1, n_cols, BLOCK)")
    assert "contiguous" not in {args.hint for args in REWRITE.candidates(source, CONTEXT)}


@pytest.mark.parametrize("name", sorted(kernels.ALL))
def test_hints_run_out(name):
    source = kernels.ALL[name][0]
    for _ in range(40):
        candidates = REWRITE.candidates(source, CONTEXT)
        if not candidates:
            break
        source = REWRITE.apply(source, candidates[0], CONTEXT)
    assert REWRITE.candidates(source, CONTEXT) == []


def test_saying_it_twice_is_an_error():
    args = AlignmentHintArgs(kernel="norm", hint="assume", target="row")
    once = REWRITE.apply(kernels.LAYER_NORM, args, CONTEXT)
    with pytest.raises(RewriteError, match="nothing provable and new"):
        REWRITE.apply(once, args, CONTEXT)
