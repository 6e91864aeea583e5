"""Each config of an autotuned kernel becomes a file of its own."""

from __future__ import annotations

from evaluator.autotune import split_autotune
from evaluator.static_checks import check
from evaluator.task import load_task
from evaluator.tunables import extract

PLAIN = load_task("softmax").seed_source
TUNED = PLAIN.replace(
    "@triton.jit\n",
    """@triton.autotune(
    configs=[
        triton.Config({"BLOCK_SIZE": 128}, num_warps=2),
        triton.Config({"BLOCK_SIZE": 1024}, num_warps=8, num_stages=2),
    ],
    key=["n_cols"],
)
@triton.jit
""",
).replace(", BLOCK_SIZE=BLOCK_SIZE, num_warps=4", "")


def test_one_source_per_config_with_the_decorator_gone():
    first, second = split_autotune(TUNED)
    assert extract(first).defaults == {
        "softmax_kernel.BLOCK_SIZE": 128,
        "softmax_kernel.num_warps": 2,
        "softmax_kernel.num_stages": 3,
    }
    assert extract(second).defaults["softmax_kernel.num_stages"] == 2
    assert "autotune" not in first + second


def test_the_split_sources_pass_the_static_stage():
    assert [check(source, load_task("softmax")).status for source in split_autotune(TUNED)] == [None, None]


def test_a_source_without_autotune_is_its_only_config():
    assert split_autotune(PLAIN) == [PLAIN]
