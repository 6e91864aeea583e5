from __future__ import annotations

import ctypes

import pytest

from evaluator.nvml import Gpu, NvmlUnavailableError

UUID = "GPU-5f1c3a77-0000-1111-2222-333344445555"
NOT_SUPPORTED = 3
ERRORS = {NOT_SUPPORTED: b"Not Supported", 6: b"Not Found", 7: b"Insufficient Size"}


class Library:
    """NVML of a machine with one GPU, as ctypes sees it: results go into the pointers of the caller."""

    def __init__(self, *, energy_mj=5_000, processes=(), used=0, refuses=()):
        self.energy_mj, self.processes, self.used = energy_mj, processes, used
        self.refuses = set(refuses)
        self.calls = []

    def __getattr__(self, name):
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*arguments):
            self.calls.append(name)
            return NOT_SUPPORTED if name in self.refuses else getattr(self, f"_{name}")(*arguments)

        return Text() if name == "nvmlErrorString" else call

    def _nvmlInit_v2(self):  # noqa: N802
        return 0

    def _nvmlDeviceGetHandleByUUID(self, uuid, handle):  # noqa: N802
        if uuid != UUID.encode():
            return 6
        handle._obj.value = 0x1234
        return 0

    def _nvmlSystemGetDriverVersion(self, text, size):  # noqa: N802
        text.value = b"580.82.07"
        return 0

    def _nvmlDeviceGetTotalEnergyConsumption(self, handle, value):  # noqa: N802
        assert handle.value == 0x1234
        value._obj.value = self.energy_mj
        return 0

    def _nvmlDeviceGetClockInfo(self, handle, kind, value):  # noqa: N802
        value._obj.value = {1: 1980, 2: 3201}[kind.value]
        return 0

    def _nvmlDeviceGetPowerUsage(self, handle, value):  # noqa: N802
        value._obj.value = 123_456
        return 0

    def _nvmlDeviceGetMemoryInfo_v2(self, handle, memory):  # noqa: N802
        assert memory._obj.version == ctypes.sizeof(memory._obj) | 2 << 24
        memory._obj.used = self.used
        return 0

    def _nvmlDeviceGetComputeRunningProcesses_v3(self, handle, count, found):  # noqa: N802
        if len(self.processes) > count._obj.value:
            return 7
        count._obj.value = len(self.processes)
        for info, (pid, size) in zip(found, self.processes, strict=False):
            info.pid, info.usedGpuMemory = pid, size
        return 0

    def _nvmlSystemGetProcessName(self, pid, text, size):  # noqa: N802
        text.value = b"/usr/bin/trainer"
        return 0


class Text:
    restype = None

    def __call__(self, code):
        return ERRORS.get(code)


def test_readings_come_in_plain_units():
    gpu = Gpu(UUID, Library(energy_mj=634_250, used=3 << 20))
    assert gpu.energy_j() == 634.25
    assert gpu.memory_used() == 3 << 20
    assert gpu.driver_version() == "580.82.07"
    assert gpu.reading().sm_clock_mhz == 1980
    assert gpu.reading().power_w == pytest.approx(123.456)


def test_torchs_uuid_without_prefix_is_understood():
    assert Gpu(UUID.removeprefix("GPU-"), Library()).uuid == UUID


def test_processes_are_named_and_sorted():
    found = Gpu(UUID, Library(processes=[(41, 1 << 30), (7, (1 << 64) - 1)])).processes()
    assert [process.pid for process in found] == [7, 41]
    assert found[0].memory_bytes is None
    assert found[1].memory_bytes == 1 << 30
    assert found[1].name == "/usr/bin/trainer"


def test_a_name_that_the_driver_keeps_to_itself_is_empty():
    library = Library(processes=[(41, 0)], refuses=["nvmlSystemGetProcessName"])
    assert Gpu(UUID, library).processes()[0].name == ""


def test_an_unknown_gpu_is_named_with_nvmls_reason():
    with pytest.raises(NvmlUnavailableError, match="nvmlDeviceGetHandleByUUID: Not Found"):
        Gpu("GPU-other", Library())


def test_an_unsupported_reading_says_so():
    gpu = Gpu(UUID, Library(refuses=["nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetClockInfo"]))
    with pytest.raises(NvmlUnavailableError, match="Not Supported"):
        gpu.energy_j()
    assert gpu.reading().sm_clock_mhz is None
    assert gpu.reading().power_w is not None


def test_a_driver_that_lacks_a_function_is_no_crash():
    class Old:
        nvmlErrorString = Text()  # noqa: N815

        def nvmlInit_v2(self):  # noqa: N802
            return 0

        def nvmlDeviceGetHandleByUUID(self, uuid, handle):  # noqa: N802
            return 0

    with pytest.raises(NvmlUnavailableError, match="no nvmlDeviceGetComputeRunningProcesses_v3"):
        Gpu(UUID, Old()).processes()


def test_a_machine_without_nvml_is_told_so():
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        with pytest.raises(NvmlUnavailableError, match="no NVML on this machine"):
            Gpu(UUID)


@pytest.mark.gpu
def test_the_real_counter_of_energy_moves():
    import torch

    gpu = Gpu(str(torch.cuda.get_device_properties(0).uuid))
    before = gpu.energy_j()
    busy = torch.randn(4096, 4096, device="cuda")
    while gpu.energy_j() == before:
        busy = torch.mm(busy, busy).clamp(-1, 1)
        torch.cuda.synchronize()
    assert gpu.energy_j() > before
    assert gpu.reading().sm_clock_mhz > 0
    assert gpu.memory_used() > 0
