from __future__ import annotations

import pytest

from evaluator.energy import measure_energy, other_users
from evaluator.nvml import Gpu
from tests.evaluator.test_nvml import UUID, Library


class Board:
    """A GPU whose counter moves while its host's clock does."""

    def __init__(self, **settings):
        self.library = Library(**settings)
        self.gpu = Gpu(UUID, self.library)
        self.seconds = 100.0

    def run(self, *, calls=1000, seconds=1.0, watts=500.0):
        def work():
            self.seconds += seconds
            self.library.energy_mj += round(watts * seconds * 1e3)
            return calls

        return measure_energy(self.gpu, work, lambda: self.seconds)


def test_energy_is_shared_out_among_the_calls():
    energy = Board().run(calls=2000, seconds=2.0, watts=500.0)
    assert energy.joules_per_call == pytest.approx(0.5)
    assert energy.watts == pytest.approx(500.0)
    assert energy.reason == ""


def test_a_run_shorter_than_the_counters_steps_has_no_energy():
    energy = Board().run(seconds=0.1)
    assert energy.joules_per_call is None
    assert "too short" in energy.reason


def test_a_counter_that_stands_still_measures_nothing():
    assert Board().run(watts=0.0).reason == "NVML's energy counter did not move"


def test_an_unsupported_counter_says_why_and_the_run_still_happens():
    board = Board(refuses=["nvmlDeviceGetTotalEnergyConsumption"])
    energy = board.run()
    assert energy.joules_per_call is None
    assert "Not Supported" in energy.reason
    assert board.seconds == 101.0


def test_a_machine_without_nvml_has_no_energy():
    assert measure_energy(None, lambda: 1, lambda: 0.0).reason == "no NVML on this machine"


def test_an_exception_of_the_run_is_passed_on():
    def broken():
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        measure_energy(Board().gpu, broken, lambda: 0.0)


def test_a_free_gpu_has_no_other_users():
    assert other_users(Board(used=64 << 20).gpu) == ""


def test_another_process_is_named():
    assert other_users(Board(processes=[(4711, 1 << 30)]).gpu) == "process 4711 (/usr/bin/trainer)"


def test_our_own_processes_are_no_others():
    board = Board(processes=[(11, 1 << 30), (12, 1 << 30)], used=2 << 30)
    assert other_users(board.gpu, own={11, 12}) == ""
    assert "12" in other_users(board.gpu, own={11})


def test_memory_that_nobody_seems_to_own_is_somebodys():
    assert "holds 8192 MiB" in other_users(Board(used=8 << 30).gpu)


def test_a_driver_that_does_not_tell_is_taken_for_free():
    assert other_users(Board(refuses=["nvmlDeviceGetComputeRunningProcesses_v3"]).gpu) == ""
