from __future__ import annotations

import itertools
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.ceilings import Ceilings, GpuIdentity, best_rate, ceilings_of
from evaluator.testing_device import FakeDevice

GPU = GpuIdentity(uuid="GPU-a", name="NVIDIA H200", driver="580.82.07", torch="2.11.0")
H200 = Ceilings(
    gpu=GPU,
    copy_bytes_per_s=4e12,
    flops={"float16": 800e12, "bfloat16": 780e12, "tf32": 390e12, "float32": 50e12},
    l2_bytes=60 << 20,
    sms=132,
)


def test_the_best_run_is_the_ceiling():
    device = FakeDevice()
    durations = itertools.chain([1.0], itertools.cycle([3e-3, 2e-3, 5e-3]))
    rate = best_rate(device, 8e9, lambda: device.launch(next(durations)), repeats=6)
    assert rate == pytest.approx(8e9 / 2e-3, rel=0.01)


def test_work_that_moves_bytes_is_bound_by_the_copy_rate():
    assert H200.speed_of_light_ms(4_000_000_000, None, "float32") == pytest.approx(1.0)


def test_work_that_computes_is_bound_by_its_dtypes_peak():
    assert H200.speed_of_light_ms(1000, 780_000_000_000, "bfloat16") == pytest.approx(1.0)


def test_the_slower_of_both_bounds():
    assert H200.speed_of_light_ms(8_000_000_000, 800_000_000_000, "float16") == pytest.approx(2.0)


def test_unknown_work_has_no_speed_of_light():
    assert H200.speed_of_light_ms(None, None, "float32") is None


def test_float32_may_run_on_tensor_cores_in_several_passes():
    assert H200.peak_flops("float32") == pytest.approx(130e12)


def test_a_task_that_allows_tf32_runs_at_tf32s_rate():
    assert H200.peak_flops("float32", allow_tf32=True) == 390e12


def test_a_dtype_that_was_not_measured_is_bounded_by_the_fastest():
    assert H200.peak_flops("float64") == 800e12


def test_what_a_kernel_wrote_last_may_still_lie_in_l2():
    size = 128 << 20
    assert H200.floor_ms(size, None, "float32") == pytest.approx((size - (60 << 20)) / 4e12 * 1e3)
    assert H200.floor_ms(1 << 20, None, "float32") is None
    assert H200.floor_ms(1 << 20, 50_000_000_000, "tf32") == pytest.approx(50e9 / 390e12 * 1e3)


@given(size=st.integers(1, 1 << 40), flops=st.integers(1, 1 << 50), dtype=st.sampled_from(["float32", "float16"]))
def test_the_floor_is_never_above_the_speed_of_light(size, flops, dtype):
    assert H200.floor_ms(size, flops, dtype) <= H200.speed_of_light_ms(size, flops, dtype)


class Measured:
    """A measurement that counts how often it is made."""

    def __init__(self, found=H200):
        self.times, self.found = 0, found

    def __call__(self):
        self.times += 1
        return self.found


def test_a_gpu_is_measured_once(tmp_path):
    measure = Measured()
    assert ceilings_of(GPU, measure, tmp_path) == ceilings_of(GPU, measure, tmp_path) == H200
    assert measure.times == 1


@pytest.mark.parametrize("change", [{"uuid": "GPU-b"}, {"driver": "590.1"}, {"torch": "2.14.0"}])
def test_another_gpu_driver_or_torch_is_measured_anew(tmp_path, change):
    ceilings_of(GPU, Measured(), tmp_path)
    other = GPU.model_copy(update=change)
    measure = Measured(H200.model_copy(update={"gpu": other}))
    assert ceilings_of(other, measure, tmp_path).gpu == other
    assert measure.times == 1


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff", b'{"sms": 3}'])
def test_a_damaged_file_is_measured_anew_with_a_warning(tmp_path, caplog, damage):
    ceilings_of(GPU, Measured(), tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage)
    measure = Measured()
    with caplog.at_level(logging.WARNING):
        assert ceilings_of(GPU, measure, tmp_path) == H200
    assert str(path) in caplog.text
    assert ceilings_of(GPU, measure, tmp_path) == H200
    assert measure.times == 1


def test_a_file_of_another_gpu_is_not_believed(tmp_path):
    ceilings_of(GPU, Measured(), tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_text(H200.model_copy(update={"gpu": GPU.model_copy(update={"uuid": "GPU-z"})}).model_dump_json())
    measure = Measured()
    ceilings_of(GPU, measure, tmp_path)
    assert measure.times == 1


def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    assert ceilings_of(GPU, Measured(), tmp_path / "file") == H200
    assert "not kept" in caplog.text


@pytest.mark.parametrize("change", [{"copy_bytes_per_s": 0.0}, {"flops": {}}, {"flops": {"float32": 0.0}}])
def test_a_ceiling_is_positive(change):
    with pytest.raises(ValueError, match=r"greater than 0|at least 1"):
        Ceilings.model_validate(H200.model_dump() | change)


@pytest.mark.gpu
def test_the_real_gpu_has_plausible_ceilings():
    import torch

    from evaluator.ceilings import measure_ceilings
    from evaluator.device import CudaDevice

    found = measure_ceilings(CudaDevice(), GPU)
    assert 1e11 < found.copy_bytes_per_s < 2e13
    assert found.flops["bfloat16"] > found.flops["tf32"] > found.flops["float32"] > 1e12
    assert not torch.backends.cuda.matmul.allow_tf32
