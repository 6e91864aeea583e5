"""Measuring keeps what it has: whatever a kernel does to its process, the other points are timed."""

from __future__ import annotations

import os
import time

import pytest

from benchmarks.calibration import measure
from benchmarks.calibration.measure import compile_all, ordered, time_all, units
from benchmarks.calibration.on_gpu import Unit, sampled
from benchmarks.calibration.records import Measured, Point, read, write
from evaluator.testing_device import FakeDevice
from evaluator.types import EvalStatus


def point(name, task="softmax"):
    return Point(id=name, task=task, structure=0, rewrites=(), config={}, source=f"# {name}", status=EvalStatus.PASSED)


def row(unit):
    return Measured(id=unit.id, workload=unit.workload, median_ms=1.0)


def dies_at_bad(todo, deadline, sending):
    for unit in todo:
        if unit.id == "bad":
            os._exit(139)
        sending.send(row(unit))
    sending.send(None)


def loses_the_context_at_bad(todo, deadline, sending):
    for unit in todo:
        if unit.id == "bad":
            sending.send("AcceleratorError: an illegal memory access was encountered")
            return
        sending.send(row(unit))
    sending.send(None)


def hangs_at_bad(todo, deadline, sending):
    for unit in todo:
        if unit.id == "bad":
            time.sleep(60)
        sending.send(row(unit))
    sending.send(None)


@pytest.mark.parametrize(
    ("child", "said"),
    [
        (dies_at_bad, "the process died"),
        (loses_the_context_at_bad, "illegal memory access"),
        (hangs_at_bad, "still running"),
    ],
)
def test_a_kernel_that_breaks_its_process_costs_only_itself(child, said, monkeypatch):
    monkeypatch.setattr(measure, "time_units", child)
    monkeypatch.setattr(measure, "START", "fork")  # the children above touch no library
    monkeypatch.setattr(measure, "HANG_S", 1.0)
    kept = []
    todo = [Unit(name, "softmax", "w", "") for name in ("first", "bad", "last")]
    time_all(todo, time.monotonic() + 60, kept.append)
    assert [(found.id, bool(found.error)) for found in kept] == [("first", False), ("bad", True), ("last", False)]
    assert said in kept[1].error


def compiles(task, source):
    if source == "# crash":
        time.sleep(0.2)  # the pool has others at work by then
        os._exit(139)
    if source == "# wrong":
        raise ValueError("no such name")
    return {"w": [source]}


def takes_a_minute(task, source):
    time.sleep(60)


def test_a_source_that_crashes_the_compiler_costs_only_itself(monkeypatch):
    monkeypatch.setattr(measure, "START", "fork")
    monkeypatch.setattr(measure, "compile_point", compiles)
    names = ["a", "crash", "wrong", *"bcdefgh"]
    found = compile_all([point(name) for name in names], 2, time.monotonic() + 60)
    assert set(names) - set(found) == {"crash"}
    assert found["wrong"] == "ValueError: no such name"
    assert found["h"] == {"w": ["# h"]}


def test_compiling_stops_at_its_deadline(monkeypatch):
    monkeypatch.setattr(measure, "START", "fork")
    monkeypatch.setattr(measure, "compile_point", takes_a_minute)
    assert compile_all([point("a")], 1, time.monotonic() + 0.5) == {}


def test_any_beginning_of_the_order_covers_all_tasks():
    points = [point(f"{task}{number}", task) for task in ("softmax", "matmul") for number in range(30)]
    early = ordered(points)[:30]
    assert {found.task for found in early} == {"softmax", "matmul"}
    assert sorted(found.id for found in ordered(points)) == sorted(found.id for found in points)


def test_units_share_inputs_and_leave_out_what_is_done():
    todo = units([point("a"), point("b")], {("a", "4096x1024")})
    assert [(unit.workload, unit.id) for unit in todo] == [
        *[("8192x4096", "a"), ("8192x4096", "b")],
        ("4096x1024", "b"),
        *[("1024x16384", "a"), ("1024x16384", "b")],
    ]


def test_samples_hold_the_device_time_alone_however_slow_the_host_is():
    device = FakeDevice(flush_s=35e-6)
    times, host_s = sampled(lambda: device.launch(4e-6, host_s=200e-6), device, device.launch)
    assert host_s == pytest.approx(200e-6)
    # The host's queueing of the closing stamp is hidden as well: the device comes to it later than the host.
    assert times == pytest.approx([4e-3] * len(times))
    assert len(times) == 20


def test_slow_kernels_get_fewer_samples():
    device = FakeDevice()
    times, _ = sampled(lambda: device.launch(40e-3), device, device.launch)
    assert len(times) == 5


def test_records_come_back_as_they_were_written(tmp_path):
    path = tmp_path / "points_softmax.jsonl.gz"
    write(path, [point("a"), point("b")])
    first = path.read_bytes()
    assert read(path, Point) == [point("a"), point("b")]
    write(path, read(path, Point))
    assert path.read_bytes() == first
