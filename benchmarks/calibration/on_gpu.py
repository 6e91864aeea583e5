"""The child's side of measuring: one source compiled, or one unit checked and timed on the GPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from benchmarks.calibration.records import Measured
from evaluator import hardware
from evaluator.task import load_task
from evaluator.types import KernelResources, Task, Workload

TARGET = hardware.get("h200")
PLACE = "cuda"
WARM_UP = 5
SAMPLES = 20
SECONDS = 0.08
"""Sampling of one unit; slow kernels get fewer samples, no fewer than MIN_SAMPLES."""
MIN_SAMPLES = 5


class Unit(NamedTuple):
    """One point at one workload, to be timed."""

    id: str
    task: str
    workload: str
    source: str


def compile_point(task_name: str, source: str) -> dict[str, list[Any]]:
    """Compile every launch of every workload into Triton's cache; their resources as JSON-like data."""
    from evaluator.candidate_module import forward

    task = load_task(task_name)
    resources: dict[str, list[Any]] = {}
    for workload in task.workloads:
        reference, init_args, inputs = prepared(task, workload)
        with launches(compile_only=True) as kernels:
            forward(built(source, init_args, reference), inputs)
        resources[workload.name] = [resources_of(kernel).model_dump(mode="json") for kernel in kernels]
    return resources


def prepared(task: Task, workload: Workload) -> tuple[Any, list[Any], list[Any]]:
    """(reference model, init arguments, inputs) on the GPU."""
    import torch

    from evaluator.judge import constructor_args, reference_names

    names = reference_names(task, workload)
    torch.manual_seed(0)
    with torch.device(PLACE):
        init_args = constructor_args(names)
        return names["Model"](*init_args), init_args, list(names["get_inputs"]())


def built(source: str, init_args: list[Any], reference: Any) -> Any:
    """The candidate's model with the reference's parameters."""
    from evaluator.candidate_module import build_model, load_candidate

    return build_model(load_candidate(source), init_args, reference.state_dict(), lambda tensor: tensor.to(PLACE))


@contextmanager
def launches(compile_only: bool) -> Iterator[list[Any]]:
    """Compiled kernels of the launches inside, in order; with `compile_only` nothing is started."""
    from unittest.mock import patch

    from triton.runtime.jit import JITFunction

    kernels: list[Any] = []
    inner = JITFunction.run

    def run(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernels.append(inner(function, *args, grid=grid, warmup=compile_only or warmup, **kwargs))
        return kernels[-1]

    with patch.object(JITFunction, "run", run):
        yield kernels


def resources_of(kernel: Any) -> KernelResources:
    """What this machine's Triton and ptxas made of one compiled kernel."""
    from evaluator.assemble import assemble
    from evaluator.compile import CompiledLaunch

    metadata = kernel.metadata
    launch = CompiledLaunch(
        kernel=metadata.name,
        grid=(1, 1, 1),
        signature={},
        constants={},
        num_warps=metadata.num_warps,
        num_stages=metadata.num_stages,
        num_ctas=getattr(metadata, "num_ctas", 1),
        shared_bytes=metadata.shared,
        ptx=kernel.asm["ptx"],
        ptx_sha="",
        ttgir_sha="",
    )
    return assemble(launch, TARGET)


def time_units(todo: list[Unit], deadline: float, sending: Connection) -> None:
    """The child: times `todo` in order, sending a row each, then None; a text when the GPU's context is lost."""
    import torch

    from evaluator.device import CudaDevice

    device = CudaDevice()
    key, held = ("", ""), None
    for unit in todo:
        if time.monotonic() > deadline:
            break
        try:
            if key != (unit.task, unit.workload):
                held = None
                torch.cuda.empty_cache()
                key, held = (unit.task, unit.workload), Prepared.of(unit)
            assert held is not None
            row = time_unit(unit, held, device)
        except Exception as error:
            row = Measured(id=unit.id, workload=unit.workload, error=f"{type(error).__name__}: {error}"[:300])
        try:
            torch.cuda.synchronize()
        except Exception as error:
            sending.send(f"{row.error or type(error).__name__}: {error}"[:300])
            return
        sending.send(row)
    sending.send(None)


class Prepared(NamedTuple):
    """One task's workload on the GPU."""

    task: Task
    reference: Any
    init_args: list[Any]
    inputs: list[Any]
    expected: list[Any]

    @classmethod
    def of(cls, unit: Unit) -> Prepared:
        """Inputs and expected outputs of a unit's workload."""
        from evaluator.candidate_module import forward
        from evaluator.correctness import flatten

        task = load_task(unit.task)
        workload = next(workload for workload in task.workloads if workload.name == unit.workload)
        reference, init_args, inputs = prepared(task, workload)
        return cls(task, reference, init_args, inputs, flatten(forward(reference, inputs)))


def time_unit(unit: Unit, held: Prepared, device: Any) -> Measured:
    """Check and time one point at one workload. Raises what the kernel raises."""
    from evaluator.candidate_module import forward
    from evaluator.correctness import flatten

    model = built(unit.source, held.init_args, held.reference)
    error, wrong = differs(flatten(forward(model, held.inputs)), held)
    if wrong:
        return Measured(id=unit.id, workload=unit.workload, error=wrong, max_error=error)
    times, host_s = sampled(lambda: forward(model, held.inputs), device, hold)
    return Measured(id=unit.id, workload=unit.workload, max_error=error, host_ms=host_s * 1e3, **summary(times))


def differs(outputs: list[Any], held: Prepared) -> tuple[float | None, str]:
    """(largest absolute error, why the outputs are wrong or "")."""
    largest = 0.0
    tolerance = held.task.tolerance
    for got, want in zip(outputs, held.expected, strict=True):
        if got.shape != want.shape or got.dtype != want.dtype:
            return None, f"{tuple(got.shape)} {got.dtype} where {tuple(want.shape)} {want.dtype} is expected"
        wide = want.float()
        error = (got.float() - wide).abs_()
        bound = tolerance.atol * min(1.0, float(wide.square().mean().sqrt())) + tolerance.rtol * wide.abs()
        largest = max(largest, float(error.max()))
        if not bool((error <= bound).all()):  # NaN is not within bounds
            share = float((error > bound).float().mean())
            return largest, f"{share:.2%} of the elements differ, by up to {largest:.3g}"
    return largest, ""


def sampled(call: Callable[[], Any], device: Any, hold: Callable[[float], None]) -> tuple[list[float], float]:
    """(device milliseconds of each sample, host seconds of one call)."""
    host_s, call_s = 1.0, 1.0
    for _ in range(3):
        device.synchronize()
        started = device.now()
        call()
        host_s = min(host_s, device.now() - started)
        device.synchronize()
        call_s = min(call_s, device.now() - started)
    samples = max(MIN_SAMPLES, min(SAMPLES, int(SECONDS / call_s)))
    warm_up = WARM_UP if samples == SAMPLES else 1
    stamps = []
    for _ in range(warm_up + samples):
        device.flush_l2()
        hold(2 * host_s + 20e-6)
        begin = device.stamp()
        call()
        stamps.append((begin, device.stamp()))
    device.synchronize()
    return [device.elapsed_ms(begin, end) for begin, end in stamps[warm_up:]], host_s


def hold(seconds: float) -> None:
    """Keep the stream busy without touching memory, so that the host is ahead when the call's turn comes."""
    import torch

    torch.cuda._sleep(int(min(seconds, 1e-3) * TARGET.clock_hz))


def summary(times: list[float]) -> dict[str, Any]:
    """Median, p20, p80 and number of samples."""
    ordered_times = sorted(times)
    return {
        "median_ms": statistics.median(times),
        "p20_ms": ordered_times[int(0.2 * (len(times) - 1))],
        "p80_ms": ordered_times[int(0.8 * (len(times) - 1) + 0.5)],
        "samples": len(times),
    }
