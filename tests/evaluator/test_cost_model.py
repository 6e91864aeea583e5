"""The model reacts to a kernel's shape as physics says, whatever its coefficients."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator import hardware
from evaluator.cost_model import (
    dram_bytes,
    imbalance,
    instructions,
    latencies,
    latency_seconds,
    pipeline_depth,
    predict,
    tensor_seconds,
)
from evaluator.launch_features import access_bytes, features
from evaluator.trace import BufferTraffic, LaunchTrace
from evaluator.types import KernelResources

H200 = hardware.get("h200")


def resources(warps=4, registers=32, shared=0, stages=3, spill=0, mix=None):
    return KernelResources(
        name="k",
        num_warps=warps,
        num_stages=stages,
        registers=registers,
        stack_bytes=spill,
        spill_store_bytes=spill,
        spill_load_bytes=spill,
        shared_bytes=shared,
        ptx_sha="0",
        sass_mix={"ldg128": 4, "stg128": 4} if mix is None else mix,
    )


def trace(programs=8192, per_program=16384, passes=1, block=1024, sharing=1.0, flops=0.0, tile=None, written=True):
    """`programs` programs that each read a row of their own `passes` times in blocks and write it once."""
    total = programs * per_program
    rounds = passes * per_program / (block * 4)
    return LaunchTrace(
        kernel="k",
        grid=(programs, 1, 1),
        programs=programs,
        sampled=4,
        constants={},
        buffers=(
            BufferTraffic(
                name="x",
                nbytes=max(1, int(total * sharing)),
                read_bytes=total * passes,
                write_bytes=0,
                unique_read_bytes=per_program,
                unique_write_bytes=0,
                sharing=sharing,
            ),
            BufferTraffic(
                name="out",
                nbytes=total,
                read_bytes=0,
                write_bytes=total if written else 0,
                unique_read_bytes=0,
                unique_write_bytes=per_program if written else 0,
                sharing=1.0,
            ),
        ),
        ops={"fma": total / 4 * passes},
        dot_flops={"fp16": flops} if flops else {},
        dot_tile=tile,
        reads_per_program=rounds,
        rounds_per_program=rounds,
        bytes_per_read=block * 4.0,
        reductions_per_program=rounds,
    )


def profile(launch, kernel):
    return predict([(launch, kernel)], H200)[0]


def time(launch, kernel):
    return profile(launch, kernel).latency_ms


def seen(launch, kernel):
    return features([(launch, kernel)], H200)


programs = st.integers(1, 100_000)
sizes = st.sampled_from([512, 4096, 16384, 131072])


@given(programs, sizes, st.integers(1, 4), st.sampled_from([1, 2, 4, 8, 16]))
def test_never_faster_than_the_bytes_allow(count, size, passes, warps):
    light = 2 * count * size / H200.dram_bytes_per_s * 1e3
    assert time(trace(count, size, passes), resources(warps)) >= light


@given(programs, st.floats(1e9, 1e13), st.sampled_from([16, 64, 128]))
def test_never_faster_than_the_products_allow(count, flops, side):
    launch = trace(count, flops=flops, tile=(side, side, 32))
    assert time(launch, resources(mix={"wgmma": 1})) >= flops / H200.peak_flops("float16") * 1e3


@given(programs, sizes, st.integers(1, 3))
def test_more_passes_are_never_faster(count, size, passes):
    assert time(trace(count, size, passes + 1), resources()) >= time(trace(count, size, passes), resources())


@given(programs, sizes)
def test_smaller_blocks_wait_more_often_and_are_never_faster(count, size):
    assert time(trace(count, size, block=64), resources()) >= time(trace(count, size, block=1024), resources())


@given(programs, sizes)
def test_narrower_loads_are_never_faster(count, size):
    wide, narrow = resources(), resources(mix={"ldg32": 4, "stg32": 4})
    assert access_bytes(narrow) < access_bytes(wide)
    assert time(trace(count, size), narrow) >= time(trace(count, size), wide)


@given(programs, sizes, st.integers(1, 512))
def test_spills_are_never_free(count, size, spill):
    assert time(trace(count, size), resources(spill=spill)) >= time(trace(count, size), resources())
    assert instructions(seen(trace(count, size), resources(spill=spill))) > instructions(
        seen(trace(count, size), resources())
    )


@given(programs, sizes, st.integers(2, 6))
def test_stages_hide_latency_where_the_compiler_pipelined_and_only_there(count, size, stages):
    pipelined = {"ldgsts": 4, "stg128": 1}
    few, many = (resources(stages=n, mix=pipelined) for n in (stages, stages + 1))
    assert pipeline_depth(seen(trace(), many)) > pipeline_depth(seen(trace(), few))
    assert time(trace(count, size), many) <= time(trace(count, size), few)
    assert pipeline_depth(seen(trace(), resources(stages=stages))) == 1.0


@given(programs, st.integers(32, 128), st.integers(1, 127))
def test_fewer_resident_programs_never_hide_more_latency(count, registers, more):
    launch = trace(count)
    heavy = min(255, registers + more)

    def waiting(number):
        return latency_seconds(seen(launch, resources(registers=number)), H200)

    assert waiting(heavy) >= waiting(registers)


def test_one_program_too_many_costs_a_second_wave():
    full, over = (trace(count, flops=count * 1e9, tile=(128, 128, 32)) for count in (132, 133))
    kernel = resources(warps=8, registers=255, mix={"wgmma": 1})
    assert imbalance(seen(full, kernel), H200) == 1.0
    for seconds in (tensor_seconds, latency_seconds):
        one, two = (seconds(seen(launch, kernel), H200) for launch in (full, over))
        assert two == pytest.approx(2 * one, rel=0.01)


def test_bytes_that_a_wave_shares_come_from_memory_once():
    def reached(sharing):
        return dram_bytes(seen(trace(8192, sharing=sharing), resources()), H200)[0, 0]

    assert reached(1 / 132) < reached(1.0) / 100


def test_a_second_pass_is_free_while_the_rows_fit_into_l2_and_not_beyond():
    small, large = trace(8192, 4096, passes=2), trace(8192, 262144, passes=2)
    assert dram_bytes(seen(small, resources()), H200)[0, 0] == small.buffers[0].nbytes
    assert dram_bytes(seen(large, resources()), H200)[0, 0] > 1.5 * large.buffers[0].nbytes


def test_few_programs_cannot_pull_the_whole_bandwidth():
    few, many = trace(8, 1 << 20), trace(1024, 1 << 13)
    assert profile(few, resources()).terms["dram"] > 2 * profile(many, resources()).terms["dram"]


def test_tensor_cores_like_large_tiles_and_warp_group_instructions():
    def seconds(side, mix):
        return tensor_seconds(seen(trace(4096, flops=1e12, tile=(side, side, 32)), resources(mix=mix)), H200)

    assert seconds(32, {"mma": 1}) > seconds(64, {"mma": 1}) > seconds(128, {"mma": 1}) > seconds(128, {"wgmma": 1})


def test_a_kernel_that_does_not_fit_says_what_it_lacks():
    with pytest.raises(ValueError, match="needs more shared than an SM of h200"):
        predict([(trace(), resources(shared=300 << 10))], H200)


@given(programs, sizes, st.integers(1, 3))
def test_the_latency_lies_between_the_largest_term_and_the_sum_of_all(count, size, passes):
    found = profile(trace(count, size, passes), resources())
    busy = [value for name, value in found.terms.items() if name != "launch"]
    assert max(busy) <= found.latency_ms - found.terms["launch"] + 1e-12
    assert found.latency_ms <= sum(found.terms.values()) + 1e-12
    assert found.bound == "launch" or found.terms[found.bound] == max(busy)
    assert 0 < found.occupancy <= 1
    assert math.isfinite(found.latency_ms)


@given(st.lists(st.tuples(programs, sizes), min_size=2, max_size=5))
def test_launches_modelled_together_take_what_each_takes_alone(shapes):
    launches = [(trace(count, size), resources()) for count, size in shapes]
    together = latencies(features(launches, H200), H200).latency_s * 1e3
    assert list(together) == pytest.approx([time(*launch) for launch in launches])
