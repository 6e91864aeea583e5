"""Occupancy follows CUDA's own arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator import hardware
from evaluator.errors import UsageError
from evaluator.occupancy import occupancy

H200 = hardware.get("h200")


@pytest.mark.parametrize(
    ("warps", "registers", "shared", "blocks", "limiter"),
    [
        (4, 32, 0, 16, "warps"),
        (1, 32, 0, 32, "blocks"),
        (4, 64, 0, 8, "registers"),
        (8, 255, 0, 1, "registers"),
        (4, 32, 100 << 10, 2, "shared"),
        (4, 32, 227 << 10, 1, "shared"),
        (4, 32, 228 << 10, 0, "shared"),
        (16, 256, 0, 0, "registers"),
        (32, 128, 0, 0, "registers"),
    ],
)
def test_known_kernels_fit_as_often_as_the_calculator_says(warps, registers, shared, blocks, limiter):
    found = occupancy(H200, warps, registers, shared)
    assert (found.blocks, found.limiter) == (blocks, limiter)
    assert found.warps == blocks * warps


@given(
    warps=st.sampled_from([1, 2, 4, 8, 16, 32]),
    registers=st.integers(1, 255),
    shared=st.integers(0, 240 << 10),
    more=st.integers(0, 64),
    name=st.sampled_from(hardware.names()),
)
def test_needing_more_never_fits_more_and_nothing_exceeds_the_sm(warps, registers, shared, more, name):
    target = hardware.get(name)
    found = occupancy(target, warps, registers, shared)
    assert occupancy(target, warps, registers + more, shared).blocks <= found.blocks
    assert occupancy(target, warps, registers, shared + more * 1024).blocks <= found.blocks
    assert 0 <= found.fraction <= 1
    assert found.blocks <= target.max_blocks_per_sm


def test_a_program_without_warps_is_a_mistake():
    with pytest.raises(ValueError, match="at least one warp"):
        occupancy(H200, 0, 32, 0)


def test_an_unknown_target_names_the_nearest():
    with pytest.raises(UsageError, match="unknown target 'h20'") as caught:
        hardware.get("h20")
    assert caught.value.hint == "did you mean h200?"


@pytest.mark.parametrize("name", hardware.names())
def test_every_target_is_whole_and_says_where_its_rates_come_from(name):
    target = hardware.get(name)
    assert target.name == name
    assert {"dram_bytes_per_s", "flops"} <= set(target.provenance)
    assert all(rate > 0 for rate in target.flops.values())
    assert target.peak_flops("bfloat16") >= target.peak_flops("float32")
    assert target.peak_flops("unheard") == target.peak_flops("float32")
