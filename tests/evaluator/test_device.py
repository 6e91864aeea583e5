from __future__ import annotations

import pytest

from evaluator.testing_device import FakeDevice


def test_work_on_one_stream_runs_one_after_the_other():
    device = FakeDevice(stamp_s=0.0)
    begin = device.stamp()
    device.launch(1e-3)
    device.launch(2e-3)
    assert device.elapsed_ms(begin, device.stamp()) == pytest.approx(3.0, abs=0.02)


def test_work_on_another_stream_is_not_between_the_stamps():
    device = FakeDevice()
    begin = device.stamp()
    device.launch(1e-3, stream="side")
    assert device.elapsed_ms(begin, device.stamp()) < 0.02
    device.synchronize()
    assert device.now() > 1e-3


def test_a_joined_stream_is_between_the_stamps():
    device = FakeDevice()
    begin = device.stamp()
    device.launch(1e-3, stream="side")
    device.join("main", "side")
    assert device.elapsed_ms(begin, device.stamp()) == pytest.approx(1.0, abs=0.02)


def test_launching_does_not_wait_but_synchronising_does():
    device = FakeDevice()
    device.launch(1.0)
    assert device.now() < 1e-3
    device.synchronize()
    assert device.now() > 1.0


def test_a_slow_host_leaves_the_device_idle():
    device = FakeDevice()
    begin = device.stamp()
    device.launch(1e-6, host_s=1e-3)
    assert device.elapsed_ms(begin, device.stamp()) == pytest.approx(1.001, abs=0.01)


@pytest.fixture
def cuda():

    from evaluator.device import CudaDevice

    return CudaDevice()


@pytest.mark.gpu
def test_events_measure_what_the_host_clock_measures(cuda):
    import torch

    big = torch.empty(1 << 29, dtype=torch.uint8, device="cuda")
    big.fill_(1)
    cuda.synchronize()
    started, begin = cuda.now(), cuda.stamp()
    for _ in range(50):
        big.fill_(1)
    end = cuda.stamp()
    cuda.synchronize()
    host_ms = (cuda.now() - started) * 1e3
    assert 0.8 * host_ms < cuda.elapsed_ms(begin, end) <= 1.02 * host_ms


@pytest.mark.gpu
def test_a_flush_makes_a_second_read_as_slow_as_the_first(cuda):
    import torch

    from evaluator.device import l2_bytes

    size = l2_bytes(torch.cuda.get_device_properties(0)) // 4
    data = torch.ones(size // 4, dtype=torch.float32, device="cuda")

    def read_ms(flush):
        data.sum()
        (cuda.flush_l2 if flush else lambda: None)()
        cuda.idle(1e-3)  # the host has launched by then
        begin = cuda.stamp()
        data.sum()
        end = cuda.stamp()
        cuda.synchronize()
        return cuda.elapsed_ms(begin, end)

    read_ms(flush=True)
    assert sorted(read_ms(True) for _ in range(9))[4] > sorted(read_ms(False) for _ in range(9))[4]


@pytest.mark.gpu
def test_replaced_clocks_of_torch_change_nothing(cuda, monkeypatch):
    import time

    import torch

    def forged(*_, **__):
        raise AssertionError("a replaced function was called")

    for owner, name in (
        (torch.cuda, "Event"),
        (torch.cuda, "synchronize"),
        (torch.cuda, "current_stream"),
        (torch.Tensor, "zero_"),
        (time, "perf_counter"),
    ):
        monkeypatch.setattr(owner, name, forged)
    begin = cuda.stamp()
    cuda.flush_l2()
    end = cuda.stamp()
    cuda.synchronize()
    assert cuda.elapsed_ms(begin, end) > 0
    assert cuda.now() > 0


@pytest.mark.gpu
def test_stamps_stay_on_their_stream_when_a_candidate_changes_the_current_one(cuda):
    import torch

    home = torch.cuda.current_stream()
    big = torch.empty(1 << 30, dtype=torch.uint8, device="cuda").fill_(1)
    other = torch.cuda.Stream()
    cuda.synchronize()
    cuda.idle(5e-3)  # the host has launched by then
    begin = cuda.stamp()
    torch.cuda.set_stream(other)
    for _ in range(20):
        big.fill_(1)
    end = cuda.stamp()
    cuda.flush_l2()
    assert torch.cuda.current_stream() == home
    cuda.synchronize()
    assert cuda.elapsed_ms(begin, end) < 1.0


@pytest.mark.gpu
def test_memory_used_counts_live_tensors(cuda):
    import torch

    before = cuda.memory_used()
    held = torch.empty(1 << 24, dtype=torch.uint8, device="cuda")
    assert cuda.memory_used() - before >= held.numel()
