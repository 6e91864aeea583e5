"""The trusted side: owns the reference, the seeds, the expected outputs and the comparison.

Nothing here ever runs candidate code, and nothing of it (the reference's source, seeds, expected outputs) is ever
sent to a worker: a worker gets init arguments, parameters and inputs only. torch is imported by the first method
that needs it.
"""

from __future__ import annotations

import hashlib
import linecache
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from evaluator import correctness, reference, wire
from evaluator.correctness import Comparison
from evaluator.digests import digests
from evaluator.errors import KernevoError, TaskError
from evaluator.task import reference_module_source
from evaluator.types import EvalStatus, Task, Workload

if TYPE_CHECKING:
    import torch

# Each check shape is run on its own distribution, and three of them on one of these as well.
VARIANTS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("inputs x10", lambda tensor: tensor * 10),
    ("inputs + 1", lambda tensor: tensor + 1),
    ("inputs x0.1", lambda tensor: tensor * 0.1),
)

_FACTORIES = (
    *("rand", "randn", "randint", "randperm", "normal"),
    *("empty", "empty_strided", "zeros", "ones", "full", "arange", "linspace", "eye"),
)

TORCH = threading.RLock()
"""Held while torch's generators are seeded or its flags matter: both belong to the whole process."""


@dataclass(frozen=True)
class Case:
    """One check: what the worker gets, and beside it what only the judge knows."""

    label: str
    init_args: list[Any]
    state: dict[str, torch.Tensor]
    inputs: list[Any]
    digests: Mapping[str, str]
    """SHA-256 of every input and parameter tensor: they must be the same after the run.

    Buffers that the reference itself changes are left out.
    """
    expected: list[torch.Tensor] = field(repr=False)
    exact: list[torch.Tensor] | None = field(repr=False)
    """Outputs of the float64 reference, where it can be upcast."""
    growth: float = 1.0
    """How much larger outputs are than on the task's own distribution: rounding errors grow with the values."""
    repeat: bool = False
    """Whether to run again with other contents in fresh memory even if nothing hints at unwritten values."""

    def for_worker(self) -> dict[str, Any]:
        """The part that may be sent to a worker."""
        return {
            "init_args": self.init_args,
            "state": self.state,
            "inputs": self.inputs,
            "repeat": self.repeat,
        }


@dataclass(frozen=True)
class Shapes:
    """A benchmark workload without its float contents: float tensors are on the meta device."""

    init_args: list[Any]
    state: dict[str, torch.Tensor]
    inputs: list[Any]
    bytes_moved: int
    """Each input and parameter read once, each output written once."""

    def for_worker(self) -> dict[str, Any]:
        """The part that may be sent to a worker."""
        return {"init_args": self.init_args, "state": self.state, "inputs": self.inputs}


class Judge:
    """Cases, shapes and comparisons of one task; everything is made once and kept. Thread-safe."""

    def __init__(self, task: Task, seed: int) -> None:
        self.task = task
        self._seed = seed
        self._lock = threading.Lock()
        self._cases: list[Case] | None = None
        self._shapes: dict[str, Shapes] = {}

    def cases(self) -> list[Case]:
        """Every check in a fixed order. Raises `TaskError` when the reference cannot be run."""
        with self._lock:
            if self._cases is None:
                self._cases = self._asked().cases(self.task, self._seed) if self.task.foreign else [*self._make_cases()]
            return self._cases

    def shapes(self, workload: Workload) -> Shapes:
        """The shapes of one benchmark workload. Raises `TaskError` when the reference cannot be built."""
        with self._lock:
            if workload.name not in self._shapes:
                asked = self._asked().shapes(self.task, self._seed) if self.task.foreign else None
                self._shapes |= asked or {workload.name: _benchmark_shapes(self.task, workload, self._seed)}
            return self._shapes[workload.name]

    @staticmethod
    def _asked() -> Any:
        """Whoever runs the references of tasks from elsewhere."""
        from evaluator import reference_host

        return reference_host

    def compare(self, case: Case, outputs: list[object]) -> Comparison:
        """The verdict on one case's flattened outputs."""
        tolerance = self.task.tolerance
        tolerance = tolerance.model_copy(update={"atol": tolerance.atol * case.growth})
        return correctness.compare(outputs, case.expected, case.exact, tolerance, allow_tf32=self.task.allow_tf32)

    def _make_cases(self) -> Iterator[Case]:
        shapes = self.task.check_shapes
        # The first shape is often a single element, which shows little: the variants begin at the second.
        varied = {name: ((index + 1) % len(shapes), change) for index, (name, change) in enumerate(VARIANTS)}
        for index, shape in enumerate(shapes):
            plain = self._case(shape, "", lambda tensor: tensor, required=True)
            yield replace(plain, repeat=index == min(1, len(shapes) - 1))
            for name, (place, change) in varied.items():
                case = self._case(shape, f", {name}", change, required=False) if place == index else None
                if case is not None:
                    yield replace(case, growth=output_growth(plain.expected, case.expected))

    def _case(self, shape: Workload, suffix: str, change: Callable[[Any], Any], required: bool) -> Any:
        with blame(self.task, shape), seeded(self._seed, self.task.name, shape.name, suffix):
            module = reference_names(self.task, shape)
            init_args = constructor_args(module)
            model = module["Model"](*init_args)
            inputs = [reference.floats_changed(value, change) for value in module["get_inputs"]()]
            try:
                expected, changed = reference.run_and_watch(model, inputs)
            except (RuntimeError, ValueError, IndexError):
                if required:
                    raise
                return None
            if not required and not all(reference.is_finite(tensor) for tensor in expected):
                return None  # the task does not allow such values
            state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
            return Case(
                label=f"{shape.name}{suffix}",
                init_args=init_args,
                state=state,
                inputs=inputs,
                digests=digests({name: held for name, held in state.items() if name not in changed}, inputs),
                expected=expected,
                exact=reference.exact_outputs(model, inputs, expected),
            )


def check_task(task: Task, seed: int = 0) -> str:
    """Why `task` cannot tell right from wrong, or "" when it can.

    A task on which one constant passes every check is quarantined, so that no kernel is blamed or praised for it.
    """
    judge = Judge(task, seed)
    cases = judge.cases()
    constants = {0.0, 1.0}
    for case in cases:
        constants |= {float(out.double().mean()) for out in case.expected if out.numel()}
    for constant in sorted(constants):
        if all(_constant_passes(judge, case, constant) for case in cases):
            return f"an output filled with {constant:.6g} passes every check of task {task.name}"
    return ""


def output_growth(plain: list[torch.Tensor], varied: list[torch.Tensor]) -> float:
    """Largest rms(varied) / rms(plain) over the outputs, at least 1."""
    ratios = [
        correctness.rms(after.double()) / before_rms
        for before, after in zip(plain, varied, strict=True)
        if before.is_floating_point() and (before_rms := correctness.rms(before.double())) > 0
    ]
    return max([1.0, *ratios])


def _constant_passes(judge: Judge, case: Case, constant: float) -> bool:
    import torch

    outputs: list[object] = [torch.full_like(out, constant) for out in case.expected]
    found = correctness.compare(outputs, case.expected, None, judge.task.tolerance)
    return found.status is None


def _benchmark_shapes(task: Task, workload: Workload, seed: int) -> Shapes:
    with blame(task, workload):
        module = reference_names(task, workload)
        for abstract in (True, False):
            try:
                with seeded(seed, task.name, workload.name, "benchmark"), _floats_on_meta(abstract):
                    init_args = constructor_args(module)
                    model = module["Model"](*init_args)
                    inputs = [_without_contents(value) for value in module["get_inputs"]()]
            except Exception:
                if not abstract:
                    raise
                continue
            state = {name: _without_contents(tensor) for name, tensor in model.state_dict().items()}
            if not any(_lost_contents(value) for value in (*inputs, *state.values())):
                break
        return Shapes(init_args, state, inputs, _least_bytes(module, init_args, state, inputs))


def _least_bytes(module: Mapping[str, Any], init_args: list[Any], state: Mapping[str, Any], inputs: list[Any]) -> int:
    import torch

    read = sum(_bytes(value) for value in (*state.values(), *inputs))
    try:
        with torch.device("meta"), torch.no_grad():
            model = module["Model"](*init_args).to("meta")
            outputs = model(*[value.to("meta") if isinstance(value, torch.Tensor) else value for value in inputs])
    except Exception:  # a reference that looks at values: the bound is then only a little too low
        return read
    return read + sum(_bytes(leaf) for leaf in correctness.flatten(outputs))


def reference_names(task: Task, workload: Workload) -> dict[str, Any]:
    """The names that a workload's reference module defines; run anew at every call."""
    source = reference_module_source(task, workload)
    name = f"<reference of {task.name} at {workload.name}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    module = types.ModuleType("kernevo_reference")
    exec(compile(source, name, "exec"), module.__dict__)
    for needed in ("Model", "get_inputs"):
        if needed not in module.__dict__:
            raise TaskError(f"{task.origin}: the reference of task {task.name} defines no {needed}")
    return module.__dict__


def constructor_args(module: Mapping[str, Any]) -> list[Any]:
    """What `Model` and `ModelNew` are constructed with."""
    return list(module["get_init_inputs"]()) if "get_init_inputs" in module else []


def _without_contents(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    return value


def _lost_contents(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.is_meta and not value.is_floating_point()


def _bytes(value: Any) -> int:
    import torch

    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0


@contextmanager
def seeded(seed: int, *names: str, devices: Sequence[int] = ()) -> Iterator[None]:
    """torch's generators (of the CPU and of these CUDA devices) seeded from (seed, names) inside, untouched outside.

    One thread at a time, whoever holds `TORCH`.
    """
    import torch

    digest = hashlib.sha256("\0".join([str(seed), *names]).encode()).digest()
    with TORCH, torch.random.fork_rng(devices=list(devices)):
        torch.manual_seed(int.from_bytes(digest[:8], "little") >> 1)
        yield


@contextmanager
def _floats_on_meta(active: bool) -> Iterator[None]:
    """Tensor factories make float tensors without memory, integer ones with contents (inputs run to GBs)."""
    import torch
    from torch.overrides import TorchFunctionMode

    factories = {getattr(torch, name) for name in _FACTORIES}

    class Meta(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func not in factories or "device" in kwargs or "generator" in kwargs:
                return func(*args, **kwargs)
            made = func(*args, **kwargs, device="meta")
            return made if made.is_floating_point() else func(*args, **kwargs)

    if not active:
        yield
        return
    with Meta():
        yield


@contextmanager
def blame(task: Task, workload: Workload) -> Iterator[None]:
    """A reference that fails is the task's fault and says so."""
    try:
        yield
    except KernevoError:
        raise
    except Exception as error:
        raise TaskError(
            f"{task.origin}: the reference of task {task.name} fails at {workload.name}: "
            f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}",
            "run the reference by hand with these parameters: "
            + (", ".join(f"{name}={value}" for name, value in workload.params.items()) or "none"),
        ) from error


def mutated(case: Case, after: object) -> tuple[EvalStatus, str] | None:
    """INPUT_MUTATED with its reason when the digests after a run differ from the case's."""
    changed = [
        name for name, digest in case.digests.items() if not isinstance(after, dict) or after.get(name) != digest
    ]
    if not changed:
        return None
    return EvalStatus.INPUT_MUTATED, f"{case.label}: the kernel changed {', '.join(changed)}"


def unstable(case: Case, outputs: list[object], result: Mapping[str, Any]) -> tuple[EvalStatus, str] | None:
    """UNINITIALISED or NONDETERMINISTIC with its reason when the repeated runs of a case disagree."""
    import torch

    if not case.repeat and "other_filling" not in result:
        return None
    first = [wire.digest(out) if isinstance(out, torch.Tensor) else out for out in outputs]
    if result.get("other_filling") == first:
        return None
    if result.get("same_filling") == first:
        return EvalStatus.UNINITIALISED, f"{case.label}: the output depends on what freshly allocated memory held"
    return EvalStatus.NONDETERMINISTIC, f"{case.label}: equal inputs gave different outputs"
