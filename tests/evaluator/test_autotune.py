"""Each config of an autotuned kernel becomes a file of its own."""

from __future__ import annotations

import ast

import pytest

from evaluator.autotune import configs_alone, split_autotune
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
TWO = 'triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})'
LAUNCH = "def forward(x):\n    copy[(1,)](x, 1)\n"
ON_LINES = "def forward(x):\n    copy[(1,)](\n        x,\n        1,\n    )\n"


def kernel(configs, name="copy", options=""):
    return (
        f"@triton.autotune({configs}, key=['n']{options})\n@triton.jit\ndef {name}(x, n, BLOCK: tl.constexpr): pass\n"
    )


def blocks(source):
    """What each split source gives its launches as BLOCK."""
    return [
        [
            ast.unparse(word.value)
            for node in ast.walk(ast.parse(alone.source))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)
            for word in node.keywords
            if word.arg == "BLOCK"
        ]
        for alone in configs_alone(source)
    ]


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


def test_each_config_says_which_it_is_of_how_many_and_what_it_sets():
    found = configs_alone(TUNED)
    assert [(alone.number, alone.total) for alone in found] == [(1, 2), (2, 2)]
    assert found[1].settings == "BLOCK_SIZE=1024, num_warps=8, num_stages=2"


LISTED = {
    "a list": kernel(f"[{TWO}]") + LAUNCH,
    "a tuple by name": kernel(f"configs=({TWO})") + LAUNCH,
    "a list with a name": f"CONFIGS = [{TWO}]\n" + kernel("CONFIGS") + LAUNCH,
    "imported by another name": "from triton import autotune as tune, Config as C\n"
    + kernel(f"[{TWO}]").replace("triton.autotune", "tune").replace("triton.Config", "C")
    + LAUNCH,
    "options by position": kernel('[triton.Config({"BLOCK": 64}, 4), triton.Config(kwargs={"BLOCK": 128})]') + LAUNCH,
    "a launch of several lines": kernel(f"[{TWO}]") + ON_LINES,
}


@pytest.mark.parametrize("source", LISTED.values(), ids=LISTED)
def test_configs_that_are_listed_are_split(source):
    assert blocks(source) == [["64"], ["128"]]


def test_a_config_may_use_the_modules_constants():
    assert blocks("SMALL = 64\n" + kernel(f"[{TWO}]".replace("64", "SMALL")) + LAUNCH) == [["SMALL"], ["128"]]


UNLISTED = {
    "a comprehension": kernel('[triton.Config({"BLOCK": b}) for b in (64, 128)]') + LAUNCH,
    "a function": kernel("configs()") + LAUNCH,
    "a sum of lists": kernel(f"[{TWO}] + [{TWO}]") + LAUNCH,
    "a list that grows": f"CONFIGS = [{TWO}]\nCONFIGS.append(more)\n" + kernel("CONFIGS") + LAUNCH,
    "a hook": kernel(f"[{TWO}]".replace("})", "}, pre_hook=clear)")) + LAUNCH,
    "configs pruned by the arguments": kernel(f"[{TWO}]", options=", prune_configs_by={}") + LAUNCH,
    "a name that the launch uses for something else": kernel('[triton.Config({"BLOCK": x})]') + LAUNCH,
    "a launch by another name": kernel(f"[{TWO}]") + "def forward(x):\n    run = copy\n    run[(1,)](x, 1)\n",
    "a kernel that is never launched": kernel(f"[{TWO}]"),
}


@pytest.mark.parametrize("source", UNLISTED.values(), ids=UNLISTED)
def test_configs_that_cannot_be_written_into_launches_are_left_alone(source):
    assert split_autotune(source) == [source]


def test_an_expression_too_long_to_rewrite_is_left_alone():
    source = kernel(f"[{TWO}]") + LAUNCH + "x = 1" + " + 1" * 2500 + "\n"
    assert [(alone.total, alone.source) for alone in configs_alone(source)] == [(1, source)]


def test_a_config_takes_the_place_of_what_a_launch_gave():
    assert blocks(kernel(f"[{TWO}]") + LAUNCH.replace("1)\n", "1, BLOCK=32)\n")) == [["64"], ["128"]]


def test_several_autotuned_kernels_give_every_combination():
    both = kernel(f"[{TWO}]") + kernel(f"[{TWO}]", "second") + LAUNCH + "    second[(1,)](x, 1)\n"
    assert blocks(both) == [["64", "64"], ["64", "128"], ["128", "64"], ["128", "128"]]


def test_of_too_many_configs_some_are_chosen_evenly():
    many = ", ".join(f'triton.Config({{"BLOCK": {size}}})' for size in range(31))
    found = configs_alone(kernel(f"[{many}]") + LAUNCH, limit=16)
    assert [alone.number for alone in found] == list(range(1, 32, 2))
    assert {alone.total for alone in found} == {31}
    assert found[1].settings == "BLOCK=2"


def test_lines_keep_their_numbers_when_asked():
    source = kernel(f"[\n    {TWO}\n]") + ON_LINES + "    return x\n"
    for alone in configs_alone(source, keep_lines=True):
        for line in ("@triton.jit", "def forward(x):", "        x,", "    return x"):
            assert alone.source.splitlines().index(line) == source.splitlines().index(line)
