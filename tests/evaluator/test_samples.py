from __future__ import annotations

import math

import pytest

from evaluator.samples import UntrustedSamplesError, read_block, read_loop
from evaluator.testing_device import FakeDevice
from evaluator.timing import run_block, run_unflushed


def honest_block(**changes):
    device = FakeDevice()
    block = run_block(device, lambda _: device.launch(1e-3), 5, 0)
    return block.model_dump(mode="json") | changes


def honest_loop(**changes):
    device = FakeDevice()
    return run_unflushed(device, lambda _: device.launch(1e-3), 5).model_dump(mode="json") | changes


def test_an_honest_block_is_read_as_it_was_sent():
    answer = honest_block()
    assert read_block(answer, 5, elapsed_s=0.006).model_dump(mode="json") == answer


def test_an_honest_loop_is_read_as_it_was_sent():
    answer = honest_loop()
    assert read_loop(answer, 5, elapsed_s=0.006).model_dump(mode="json") == answer


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"ms": [1.0] * 4}, "4 samples came back, 5 were asked for"),
        ({"ms": [1.0] * 6}, "6 samples"),
        ({"ms": [1.0, 1.0, 1.0, 1.0, 0.0]}, "cannot take 0.0"),
        ({"ms": [1.0, 1.0, 1.0, 1.0, -1.0]}, "cannot take -1.0"),
        ({"ms": [1.0, 1.0, 1.0, 1.0, math.nan]}, "cannot take nan"),
        ({"ms": [1.0, 1.0, 1.0, 1.0, math.inf]}, "cannot take inf"),
        ({"ms": [1.0, 1.0, 1.0, 1.0, "x"]}, "no block"),
        ({"ms": [3.0] * 5}, "the samples cannot have taken 0.0149"),
        ({"ms": None}, "no block"),
        ({"host_s": math.nan}, "cannot take nan"),
        ({"host_s": 0.0}, "cannot take 0.0"),
        ({"host_s": 1.0}, "the block cannot have taken 1.0"),
        ({"call_s": -1e-6}, "cannot take -1e-06"),
        ({"flush_ms": math.inf}, "cannot take inf"),
        ({"extra": 1}, "no block"),
    ],
)
def test_a_forged_block_is_refused(changes, why):
    with pytest.raises(UntrustedSamplesError, match=why):
        read_block(honest_block(**changes), 5, elapsed_s=0.006)


@pytest.mark.parametrize("answer", [None, [], "block", 3, {}])
def test_an_answer_that_is_no_block_is_refused(answer):
    with pytest.raises(UntrustedSamplesError, match="no block"):
        read_block(answer, 1, elapsed_s=1.0)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"count": 4}, "4 calls"),
        ({"host_s": -1.0}, "cannot take -1.0"),
        ({"issue_s": math.nan}, "cannot take nan"),
        ({"issue_s": 0.1}, "launching cannot have taken"),
        ({"host_s": 1.0}, "the loop cannot have taken"),
        ({"host_s": "soon"}, "no loop"),
    ],
)
def test_a_forged_loop_is_refused(changes, why):
    with pytest.raises(UntrustedSamplesError, match=why):
        read_loop(honest_loop(**changes), 5, elapsed_s=0.006)
