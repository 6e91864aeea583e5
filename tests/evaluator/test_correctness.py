from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator import correctness
from evaluator.correctness import compare, flatten, measure
from evaluator.types import EvalStatus, Tolerance

LOOSE = Tolerance(atol=1e-2, rtol=1e-2)
FLOAT32 = Tolerance(atol=1e-4, rtol=1e-4)


def status(actual, expected, exact=None, tolerance=FLOAT32, **options):
    exact = None if exact is None else [exact]
    return compare([actual], [expected], exact, tolerance, **options).status


@given(st.integers(0, 2**31), st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.float64]))
def test_equal_outputs_agree(seed, dtype):
    torch.manual_seed(seed)
    out = (torch.randn(3, 5) * 10).to(dtype)
    assert status(out.clone(), out, out.double()) is None


def test_a_missing_output_is_a_wrong_shape():
    assert compare([], [torch.ones(2)], None, FLOAT32).status is EvalStatus.WRONG_SHAPE


def test_an_object_that_is_no_tensor_is_named():
    found = compare(["NoneType"], [torch.ones(2)], None, FLOAT32)
    assert found.status is EvalStatus.WRONG_SHAPE
    assert "NoneType" in found.reason


def test_shape_is_compared_before_values():
    found = compare([torch.ones(2, 1)], [torch.ones(2)], None, FLOAT32)
    assert found.status is EvalStatus.WRONG_SHAPE
    assert "(2, 1)" in found.reason
    assert "(2,)" in found.reason


def test_dtype_is_compared_before_values():
    assert status(torch.ones(2).half(), torch.ones(2)) is EvalStatus.WRONG_DTYPE


def test_a_wrong_value_is_located():
    expected = torch.randn(4, 8)
    actual = expected.clone()
    actual[2, 5] += 1
    actual[3, 1] += 1
    found = compare([actual], [expected], None, FLOAT32)
    assert found.status is EvalStatus.WRONG_VALUE
    assert "2 of 32" in found.reason
    assert "[2, 5]" in found.reason
    assert "[3, 1]" in found.explain


def test_zeros_do_not_pass_on_tiny_outputs():
    expected = torch.randn(64) * 1e-5
    assert status(torch.zeros(64), expected, tolerance=LOOSE) is EvalStatus.WRONG_VALUE


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_or_inf_where_the_reference_is_finite_is_non_finite(bad):
    actual = torch.ones(4)
    actual[3] = bad
    found = compare([actual], [torch.ones(4)], None, FLOAT32)
    assert found.status is EvalStatus.NON_FINITE
    assert "[3]" in found.explain


def test_infinities_and_nan_equal_themselves():
    special = torch.tensor([math.inf, -math.inf, math.nan, 1.0])
    assert status(special.clone(), special) is None


@pytest.mark.parametrize(
    ("got", "want"), [(math.inf, -math.inf), (1.0, math.nan), (1.0, math.inf), (math.nan, math.inf)]
)
def test_another_special_value_is_wrong(got, want):
    assert status(torch.tensor([got, 1.0]), torch.tensor([want, 1.0])) is EvalStatus.WRONG_VALUE


def test_integers_and_bools_must_be_equal():
    assert status(torch.tensor([1, 2]), torch.tensor([1, 3])) is EvalStatus.WRONG_VALUE
    assert status(torch.tensor([True]), torch.tensor([False])) is EvalStatus.WRONG_VALUE
    assert status(torch.tensor([7]), torch.tensor([7])) is None


def test_every_output_of_a_tuple_is_compared():
    first, second = torch.ones(3), torch.zeros(3)
    found = compare([first, second + 1], [first, second], None, FLOAT32)
    assert found.status is EvalStatus.WRONG_VALUE
    assert found.reason.startswith("output 1")


def test_nested_outputs_are_flattened_in_order():
    assert flatten((1, [2, {"a": 3, "b": (4,)}], 5)) == [1, 2, 3, 4, 5]


def test_max_error_is_the_largest_finite_difference():
    found = compare([torch.tensor([1.0, 2.5, math.inf])], [torch.tensor([1.0, 2.0, math.inf])], None, LOOSE)
    assert found.max_error == pytest.approx(0.5)


def matmul():
    torch.manual_seed(0)
    left, right = torch.randn(64, 512), torch.randn(512, 64)
    return left, right, left.double() @ right.double()


def tf32(tensor):
    return (tensor.view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_a_float32_product_of_half_operands_is_imprecise_even_under_a_loose_tolerance(low):
    left, right, exact = matmul()
    narrow = left.to(low).float() @ right.to(low).float()
    assert status(narrow, left @ right, exact, Tolerance(atol=1, rtol=1)) is EvalStatus.PRECISION


def test_a_float32_product_of_tf32_operands_is_imprecise_unless_the_task_allows_it():
    left, right, exact = matmul()
    narrow = tf32(left) @ tf32(right)
    wide = Tolerance(atol=1, rtol=1)
    assert status(narrow, left @ right, exact, wide) is EvalStatus.PRECISION
    assert status(narrow, left @ right, exact, wide, allow_tf32=True) is None


@pytest.mark.parametrize("block", [1, 16, 100])
def test_an_honest_float32_sum_in_any_order_is_precise(block):
    torch.manual_seed(1)
    data = torch.randn(32, 4000) + 1
    total = torch.zeros(32)
    for start in range(0, 4000, block):
        chunk = data[:, start : start + block]
        for column in range(chunk.shape[1]):
            total = total + chunk[:, column]
    assert status(total, data.sum(1), data.double().sum(1)) is None


def test_exp2_with_a_folded_constant_is_precise():
    torch.manual_seed(2)
    data = torch.randn(16, 1000) * 10
    shifted = data - data.amax(1, keepdim=True)
    powers = torch.exp2(shifted * 1.4426950408889634)
    actual = powers / powers.sum(1, keepdim=True)
    assert status(actual, torch.softmax(data, 1), torch.softmax(data.double(), 1)) is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_kernels_that_accumulate_in_float32_pass(dtype):
    torch.manual_seed(3)
    left, right = torch.randn(64, 300).to(dtype), torch.randn(300, 64).to(dtype)
    exact = left.double() @ right.double()
    accumulated = (left.float() @ right.float()).to(dtype)
    assert status(accumulated, left @ right, exact, LOOSE) is None


@settings(max_examples=150, deadline=None)
@given(
    dtype=st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16]),
    size=st.integers(1, 40),
    scale=st.sampled_from([1e-6, 1.0, 1e3]),
    slip=st.sampled_from([0.0, 1e-7, 5e-5, 1e-3, 0.5, math.nan, math.inf]),
    special=st.sampled_from([0.0, math.inf, -math.inf, math.nan]),
    seed=st.integers(0, 99),
)
def test_the_quick_look_and_the_close_one_agree(dtype, size, scale, slip, special, seed):
    made = torch.Generator().manual_seed(seed)
    exact = torch.randn(size, generator=made, dtype=torch.float64) * scale
    want = exact.to(dtype)
    got = want * (1 + slip * torch.randn(size, generator=made, dtype=torch.float64).to(dtype))
    if special:
        want[0] = got[0] = exact[0] = special
    tolerance = Tolerance(atol=1e-4, rtol=1e-4)
    quick = compare([got], [want], [exact], tolerance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(correctness, "_quickly", lambda *_: None)
        close = compare([got], [want], [exact], tolerance)
    # At the very edge of a tolerance, float32 and float64 may round to different sides; 1e-7 never gets there.
    assert quick.status is close.status
    if quick.max_error is not None:
        assert quick.max_error == pytest.approx(close.max_error, rel=1e-5, abs=1e-12 * scale)
    kept = compare([got], [want], [exact], tolerance, yardsticks=measure([want], [exact]))
    assert kept == quick


@given(st.integers(0, 2**31), st.sampled_from([0.0, 1e-6, 5e-5, 1e-3, math.nan, math.inf]), st.booleans())
def test_outputs_in_many_pieces_get_the_verdict_of_one_piece(seed, change, everywhere):
    torch.manual_seed(seed)
    want = torch.randn(7, 11)
    got = want.clone()
    got.view(-1)[slice(None) if everywhere else slice(76, 77)] += change
    whole = compare([got], [want], None, FLOAT32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(correctness, "PIECE", 10)
        assert compare([got], [want], None, FLOAT32) == whole
