from __future__ import annotations

import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evaluator import wire

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text().filter(lambda key: not key.startswith("$")), inner, max_size=4)
    ),
    max_leaves=20,
)


def same(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, list | tuple):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return type(left) is type(right) and left == right


@given(trees)
def test_plain_values_come_back_as_they_were(value):
    assert same(value, wire.load(wire.dump(value)))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.uint8]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3, 4)])
def test_tensors_come_back_bit_for_bit(dtype, shape):
    tensor = (torch.randn(shape) * 3).to(dtype)
    back = wire.load(wire.dump({"x": tensor}))["x"]
    assert back.dtype == dtype
    assert back.shape == tensor.shape
    assert torch.equal(back, tensor)


def test_nan_and_inf_inside_tensors_survive():
    tensor = torch.tensor([math.nan, math.inf, -math.inf, -0.0])
    assert torch.equal(wire.load(wire.dump(tensor)).view(torch.int32), tensor.view(torch.int32))


def test_strides_of_transposed_and_gapped_tensors_survive():
    transposed = torch.randn(4, 6).t()
    gapped = torch.randn(4, 8)[:, :6]
    for tensor in (transposed, gapped):
        back = wire.load(wire.dump(tensor))
        assert back.stride() == tensor.stride()
        assert torch.equal(back, tensor)


def test_an_expanded_tensor_arrives_dense_with_its_values():
    tensor = torch.arange(3.0).expand(5, 3)
    assert torch.equal(wire.load(wire.dump(tensor)), tensor)


def test_meta_tensors_travel_as_shape_and_stride_only():
    frame = wire.dump(torch.empty(1 << 14, 1 << 14, device="meta").t())
    back = wire.load(frame)
    assert len(frame) < 500
    assert back.is_meta
    assert back.stride() == (1, 1 << 14)
    with pytest.raises(wire.WireError):
        wire.load(frame, allow_meta=False)


def test_received_tensors_share_no_memory_with_the_frame():
    frame = bytearray(wire.dump(torch.ones(4)))
    back = wire.load(frame)
    frame[-16:] = bytes(16)
    assert torch.equal(back, torch.ones(4))


@pytest.mark.parametrize("value", [object(), {1: 2}, {"$tensor": 0}, b"bytes", torch.nn.Linear(1, 1)])
def test_what_is_not_data_is_refused(value):
    with pytest.raises(wire.WireError):
        wire.dump(value)


def test_tensor_subclasses_are_refused():
    class Lazy(torch.Tensor):
        pass

    with pytest.raises(wire.WireError):
        wire.dump(torch.ones(2).as_subclass(Lazy))


def test_a_pickle_is_not_a_frame():
    with pytest.raises(wire.WireError):
        wire.load(pickle.dumps([1, 2, 3] * 20))


@given(st.binary(max_size=200))
def test_random_bytes_are_a_wire_error(data):
    with pytest.raises(wire.WireError):
        wire.load(data)


@given(st.data())
def test_a_frame_with_changed_bytes_is_a_wire_error_or_a_plain_value(data):
    frame = bytearray(wire.dump({"value": [1, 2.5, "text", torch.arange(6.0).reshape(2, 3)]}))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(frame) - 1))
        frame[position] = data.draw(st.integers(0, 255))
    try:
        wire.load(frame, max_bytes=1 << 20)
    except wire.WireError:
        return


@pytest.mark.parametrize("cut", [0, 4, 15, 16, 40, -1])
def test_a_truncated_frame_is_a_wire_error(cut):
    with pytest.raises(wire.WireError):
        wire.load(wire.dump({"x": torch.ones(8)})[:cut])


def test_a_frame_that_promises_too_much_is_refused_before_it_is_read():
    prefix = wire.PREFIX.pack(wire.MAGIC, 10, 1 << 50)
    with pytest.raises(wire.WireError):
        wire.frame_size(prefix, 1 << 30)


def test_digests_tell_contents_dtype_and_shape_apart_but_not_strides():
    tensor = torch.arange(6.0).reshape(2, 3)
    changed = tensor.clone()
    changed[1, 2] += 1e-6 * 100
    assert wire.digest(tensor) == wire.digest(tensor.t().contiguous().t())
    others = (changed, tensor.reshape(3, 2), tensor.double(), tensor.view(torch.int32))
    assert len({wire.digest(other) for other in (tensor, *others)}) == 5
