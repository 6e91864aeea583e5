"""Tunables are found wherever their literal sits, and writing a config changes nothing else."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.errors import UsageError
from evaluator.task import list_tasks, load_task
from evaluator.tunables import apply, extract

KERNEL = """import torch, triton
import triton.language as tl

{module}
@triton.jit
def k(x_ptr, n, BLOCK: tl.constexpr{default}):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for _ in range(0, n, BLOCK):
        tl.store(x_ptr + offs, 1.0, mask=offs < n)


class ModelNew(torch.nn.Module):
    def forward(self, x{argument}):
        {local}
        k[{grid}](x, x.numel(){launch})
        return x
"""


def kernel(module="", default="", argument="", local="pass", grid="(1,)", launch=", BLOCK=BLOCK"):
    return KERNEL.format(module=module, default=default, argument=argument, local=local, grid=grid, launch=launch)


PLACES = {
    "module constant": kernel(module="BLOCK = 256  # elements\n"),
    "annotated module constant": kernel(module="BLOCK: int = 256\n"),
    "launch keyword": kernel(launch=", BLOCK=256"),
    "positional argument": kernel(launch=", 256"),
    "local variable": kernel(local="BLOCK = 256"),
    "default of the host function": kernel(argument=", BLOCK=256"),
    "default of the kernel": kernel(default=" = 256", launch=""),
    "dict passed with stars": kernel(module='CONFIG = {"BLOCK": 256, "num_warps": 2}\n', launch=", **CONFIG"),
    "dict entry": kernel(module="CONFIG = dict(BLOCK=256)\n", launch=', BLOCK=CONFIG["BLOCK"]'),
    "a name for a name": kernel(module="SIZE = 256\n", local="BLOCK = SIZE"),
}


@pytest.mark.parametrize("source", PLACES.values(), ids=PLACES.keys())
def test_a_block_size_is_found_and_written_wherever_its_literal_sits(source):
    space = extract(source)
    assert space.defaults["k.BLOCK"] == 256
    changed = apply(source, {"k.BLOCK": 1024})
    assert extract(changed).defaults["k.BLOCK"] == 1024
    assert changed == source.replace("256", "1024")


def test_an_attribute_set_once_in_the_constructor_is_followed():
    source = kernel(launch=", BLOCK=self.block").replace(
        "    def forward", "    def __init__(self):\n        self.block = 256\n\n    def forward"
    )
    assert extract(apply(source, {"k.BLOCK": 512})).defaults["k.BLOCK"] == 512


@pytest.mark.parametrize("task", list_tasks())
def test_writing_the_defaults_back_is_the_identity_on_every_seed(task):
    source = load_task(task).seed_source
    space = extract(source)
    assert space.tunables
    assert apply(source, space.defaults) == source


@given(data=st.data(), task=st.sampled_from(list_tasks()))
def test_any_config_can_be_written_read_back_and_undone(data, task):
    source = load_task(task).seed_source
    space = extract(source)
    config = {tunable.name: data.draw(st.sampled_from(tunable.choices)) for tunable in space.tunables}
    changed = apply(source, config)
    ast.parse(changed)
    assert {name: extract(changed).defaults[name] for name in config} == config
    # Options that were inserted stay written out; everything else is the source again.
    assert extract(apply(changed, space.defaults)).defaults == space.defaults


def test_comments_quotes_and_line_breaks_survive():
    source = kernel(
        module="BLOCK = 256  # élan — ünïcode before the literal moves byte offsets\n",
        launch=",\n          BLOCK = BLOCK,  # the block\n          num_warps=(4),\n        ",
    )
    changed = apply(source, {"k.BLOCK": 64, "k.num_warps": 8})
    assert changed == source.replace("BLOCK = 256", "BLOCK = 64").replace("num_warps=(4)", "num_warps=(8)")


def test_an_option_left_to_triton_is_tunable_and_appears_only_when_it_differs():
    source = kernel(launch=", BLOCK=256")
    assert extract(source).defaults == {"k.BLOCK": 256, "k.num_warps": 4, "k.num_stages": 3}
    assert apply(source, {"k.num_warps": 4}) == source
    assert "BLOCK=256, num_warps=8)" in apply(source, {"k.num_warps": 8})


@pytest.mark.parametrize(
    "launch", [", BLOCK=256,", ",\n            BLOCK=256,  # why, oh why (\n        ", ", 256", ", BLOCK=(256)"]
)
def test_an_inserted_option_leaves_a_source_that_parses(launch):
    changed = apply(kernel(launch=launch), {"k.num_warps": 2, "k.num_stages": 1})
    ast.parse(changed)
    assert extract(changed).defaults == {"k.BLOCK": 256, "k.num_warps": 2, "k.num_stages": 1}


def test_stages_are_no_tunable_of_a_kernel_without_a_loop():
    source = kernel(launch=", BLOCK=256").replace("for _ in range(0, n, BLOCK):", "if n > 0:")
    assert "k.num_stages" not in extract(source).names


def test_a_block_computed_from_the_shape_is_left_alone():
    source = kernel(local="BLOCK = triton.next_power_of_2(x.numel())")
    assert "k.BLOCK" not in extract(source).names


def test_a_name_that_is_rebound_is_left_alone():
    assert "k.BLOCK" not in extract(kernel(local="BLOCK = 256; BLOCK = 512")).names


def test_a_number_repeated_in_the_grid_is_not_tuned_apart_from_it():
    source = kernel(grid="(x.numel() // 256,)", launch=", BLOCK=256")
    space = extract(source)
    assert "k.BLOCK" not in space.names
    assert "the grid repeats the number 256" in space.skipped["k.BLOCK"]


def test_a_grid_that_uses_the_name_or_meta_follows_the_block():
    assert (
        "k.BLOCK" in extract(kernel(grid='lambda meta: (triton.cdiv(8, meta["BLOCK"]),)', launch=", BLOCK=256")).names
    )
    assert "k.BLOCK" in extract(kernel(module="BLOCK = 256\n", grid="(triton.cdiv(x.numel(), BLOCK),)")).names


def test_two_launches_with_different_blocks_are_left_alone():
    source = kernel(launch=", BLOCK=256").replace(
        "        return x", "        k[(1,)](x, 1, BLOCK=128)\n        return x"
    )
    assert extract(source).skipped["k.BLOCK"] == "launches use different values"


def test_entries_of_a_triton_config_are_tunables():
    source = kernel(launch="").replace(
        "@triton.jit", '@triton.autotune([triton.Config({"BLOCK": 128}, num_warps=2)], key=["n"])\n@triton.jit'
    )
    assert extract(source).defaults == {"k.config0.BLOCK": 128, "k.config0.num_warps": 2}
    assert '{"BLOCK": 512}' in apply(source, {"k.config0.BLOCK": 512})


def test_the_default_is_always_among_the_choices_and_choices_are_sorted():
    for task in list_tasks():
        for tunable in extract(load_task(task).seed_source).tunables:
            assert tunable.default in tunable.choices
            assert list(tunable.choices) == sorted(set(tunable.choices))


def test_tiles_of_a_matrix_product_stay_small():
    space = extract(load_task("matmul").seed_source)
    assert all(max(tunable.choices) <= 256 for tunable in space.tunables if tunable.kind == "block")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"k.BLOK": 64}, "unknown tunable 'k.BLOK'"),
        ({"k.BLOCK": 100}, "100 is no power of two"),
        ({"k.BLOCK": 0}, "0 is no positive integer"),
        ({"k.BLOCK": "64"}, "'64' is no positive integer"),
        ({"k.BLOCK": True}, "True is no positive integer"),
        ({"k.num_warps": 3}, "3 is no power of two"),
    ],
)
def test_a_wrong_config_is_refused_with_the_reason(config, message):
    with pytest.raises(UsageError, match=message.replace(".", r"\.")):
        apply(kernel(launch=", BLOCK=256"), config)


def test_a_misspelt_tunable_names_the_nearest():
    with pytest.raises(UsageError) as caught:
        apply(kernel(launch=", BLOCK=256"), {"k.BLOK": 64})
    assert caught.value.hint == "did you mean k.BLOCK?"


@pytest.mark.parametrize("source", ["x = (", "(" * 10_000, "\0"])
def test_a_source_that_does_not_parse_is_refused(source):
    with pytest.raises(UsageError, match="does not parse"):
        extract(source)
