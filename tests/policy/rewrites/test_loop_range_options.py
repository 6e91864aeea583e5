import pytest

from policy.rewrites.base import RewriteContext, RewriteError
from policy.rewrites.loop_range_options import LoopRangeArgs, LoopRangeOptions
from tests.policy.rewrites import kernels
from tests.policy.rewrites.harness import check_rewrite

REWRITE = LoopRangeOptions()
CONTEXT = RewriteContext()

NESTED = kernels.MATMUL.replace("    for k in range(0, K, BLOCK_K):", "    for k in range(0, K, BLOCK_K):").replace(
    '        acc += tl.dot(a, b, input_precision="ieee")',
    '        for part in range(2):\n            acc += tl.dot(a, b, input_precision="ieee") * 0.5',
)


@pytest.mark.parametrize("name", ["softmax", "matmul"])
def test_loop_options_change_no_result(interpreter, name):
    source, setups = kernels.ALL[name]
    check_rewrite(interpreter, REWRITE, source, setups[:3], limit=6)


def test_a_plain_range_becomes_the_languages_range():
    args = LoopRangeArgs(kernel="softmax_kernel", loop=1, option="num_stages", value=3)
    text = REWRITE.apply(kernels.SOFTMAX, args, CONTEXT)
    assert text.count("tl.range(0, n_cols, BLOCK, num_stages=3)") == 1
    assert text.count("in range(0, n_cols, BLOCK)") == 2


def test_options_add_up_and_replace_their_own_value():
    first = LoopRangeArgs(kernel="softmax_kernel", loop=0, option="num_stages", value=2)
    source = REWRITE.apply(kernels.SOFTMAX, first, CONTEXT)
    source = REWRITE.apply(source, first.model_copy(update={"option": "loop_unroll_factor"}), CONTEXT)
    source = REWRITE.apply(source, first.model_copy(update={"value": 4}), CONTEXT)
    assert "tl.range(0, n_cols, BLOCK, num_stages=4, loop_unroll_factor=2)" in source


def test_flatten_is_for_nests_and_accumulator_buffers_for_dots():
    def options(source):
        return {args.option for args in REWRITE.candidates(source, CONTEXT)}

    assert "flatten" not in options(kernels.MATMUL)
    assert "flatten" in options(NESTED)
    assert "disallow_acc_multi_buffer" in options(kernels.MATMUL)
    assert "disallow_acc_multi_buffer" not in options(kernels.SOFTMAX)


def test_a_flattened_nest_keeps_its_results(interpreter):
    args = LoopRangeArgs(kernel="matmul_kernel", loop=0, option="flatten", value=1)
    text = REWRITE.apply(NESTED, args, CONTEXT)
    assert "flatten=True" in text
    for setup in kernels.MATMUL_SETUPS[:2]:
        want, got = interpreter.run(NESTED, setup), interpreter.run(text, setup)
        assert (want[0] == got[0]).all()


def test_static_ranges_and_kernels_without_loops_have_no_candidates():
    static = kernels.SOFTMAX.replace("in range(", "in tl.static_range(")
    assert REWRITE.candidates(static, CONTEXT) == []
    assert REWRITE.candidates(kernels.LAYER_NORM, CONTEXT) == []


def test_setting_what_is_set_is_an_error():
    args = LoopRangeArgs(kernel="softmax_kernel", loop=0, option="num_stages", value=3)
    once = REWRITE.apply(kernels.SOFTMAX, args, CONTEXT)
    assert args not in REWRITE.candidates(once, CONTEXT)
    with pytest.raises(RewriteError, match="as it is"):
        REWRITE.apply(once, args, CONTEXT)


def test_a_value_out_of_the_choices_is_refused():
    with pytest.raises(RewriteError, match="num_stages=99"):
        REWRITE.apply(
            kernels.SOFTMAX, LoopRangeArgs(kernel="softmax_kernel", loop=0, option="num_stages", value=99), CONTEXT
        )
