"""Inputs and expected outputs on the judge's device (trusted side; see `evaluator.judge` for what a task's cases are).

Inputs are made on the device from the judge's secret seed, expected outputs once per (workload, seed). What does not
fit into the budget is made again when it is needed: making 6 GB of random numbers on a GPU takes milliseconds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from evaluator import correctness, judge, reference
from evaluator.correctness import Comparison, Yardstick
from evaluator.gpu_memory import Layout, Place, is_tensor
from evaluator.types import Task, Workload

if TYPE_CHECKING:
    import torch

EXACT_BYTES = 2 << 30
"""Outputs beyond this have no float64 counterpart, which would need four times their memory while it is made."""
LARGE_BYTES = 1 << 30
GLANCE = 1 / 64
"""Share of a large output that is looked at before the whole."""
FEW_CASES = 4
SEEDS = 5
"""Secret seeds that every benchmark workload is checked with."""


@dataclass(frozen=True)
class DeviceCase:
    """One set of inputs of a workload and what must come out."""

    workload: Workload
    label: str
    inputs: list[Any]
    expected: list[torch.Tensor] = field(repr=False)
    exact: list[torch.Tensor] | None = field(repr=False)
    yardsticks: list[Yardstick] = field(repr=False)
    number: int = 0
    variant: str = ""
    growth: float = 1.0

    def output(self, index: int) -> DeviceCase:
        """The same with one output only."""
        exact = None if self.exact is None else [self.exact[index]]
        return replace(self, expected=[self.expected[index]], exact=exact, yardsticks=[self.yardsticks[index]])

    def part(self, begin: float, end: float) -> DeviceCase:
        """The same with a share of each output, from `begin` to `end` in [0, 1] of its flat elements."""
        exact = None if self.exact is None else [share(out, begin, end) for out in self.exact]
        return replace(self, expected=[share(out, begin, end) for out in self.expected], exact=exact)

    @property
    def nbytes(self) -> int:
        """Device memory it holds."""
        tensors = [*self.inputs, *self.expected, *(self.exact or [])]
        return sum(_nbytes(value) for value in tensors)


@dataclass(frozen=True)
class Stand:
    """What all cases of one workload share: constructor arguments, parameters and shapes."""

    workload: Workload
    init_args: list[Any]
    state: Mapping[str, torch.Tensor] = field(repr=False)
    inputs: list[Any] = field(repr=False)
    """Like a case's, without contents (meta device)."""
    outputs: list[torch.Tensor] = field(repr=False)
    """Like a case's, without contents (meta device)."""
    case_bytes: int
    """Device memory that one case takes."""
    changed: frozenset[str] = frozenset()
    """Buffers that the reference changes at every call; kernels may change them too."""

    def carve(self, sets: int, sinks: int) -> Carved:
        """Places for the parameters, `sets` sets of inputs and `sinks` sets of outputs."""
        layout = Layout()
        state = {name: layout.add_like(tensor) for name, tensor in self.state.items()}
        inputs = [[_place(layout, value) for value in self.inputs] for _ in range(sets)]
        taken = [
            [layout.add(out.shape, out.contiguous().stride(), _name(out)) for out in self.outputs] for _ in range(sinks)
        ]
        return Carved(layout, state, inputs, taken)


@dataclass(frozen=True)
class Carved:
    """An arena's contents for one workload."""

    layout: Layout
    state: Mapping[str, Place]
    sets: list[list[Any]]
    """Places, and values that are no tensors."""
    sinks: list[list[Place]]

    @property
    def input_bytes(self) -> int:
        """Of one set."""
        return sum(place.nbytes for place in self.sets[0] if isinstance(place, Place))

    def moved(self, offset: int) -> Carved:
        """The same, `offset` bytes further on."""
        layout = self.layout.moved(offset)
        state = {name: place.moved(offset) for name, place in self.state.items()}
        sets = [[value.moved(offset) if isinstance(value, Place) else value for value in one] for one in self.sets]
        return Carved(layout, state, sets, [[place.moved(offset) for place in sink] for sink in self.sinks])


class DeviceCases:
    """Makes and keeps stands and cases of one task. Thread-safe: of all devices' threads, one runs references."""

    def __init__(self, task: Task, seed: int, device: str, budget_bytes: int) -> None:
        self.task = task
        self._seed, self._device, self._budget = seed, device, budget_bytes
        self._lock = judge.TORCH
        self._stands: dict[str, Stand] = {}
        self._kept: OrderedDict[tuple[str, int, str], DeviceCase] = OrderedDict()

    def most_sets(self) -> int:
        """Sets of inputs for all workloads side by side whose cases are kept and need not be made again."""
        each = sum(self.stand(workload).case_bytes for workload in self.task.workloads)
        return self._budget // max(each, 1)

    def stand(self, workload: Workload) -> Stand:
        """The common part of a workload's cases. Raises `TaskError` when the reference cannot be built or run."""
        with self._lock:
            if workload.name not in self._stands:
                self._stands[workload.name] = self._make_stand(workload)
            return self._stands[workload.name]

    def plain(self, workload: Workload, number: int) -> DeviceCase:
        """Inputs from seed `number` as the task makes them, which every task has."""
        made = self.case(workload, number)
        assert made is not None
        return made

    def case(self, workload: Workload, number: int, variant: str = "") -> DeviceCase | None:
        """Inputs from seed `number`, changed by a variant of `evaluator.judge`; None where the task allows none."""
        key = (workload.name, number, variant)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            made = self._make_case(workload, number, variant)
            if made is not None:
                self._keep(key, made)
            return made

    def compare(self, case: DeviceCase, outputs: list[object]) -> Comparison:
        """The verdict on one case's flattened outputs."""
        tolerance = self.task.tolerance
        tolerance = tolerance.model_copy(update={"atol": tolerance.atol * case.growth})
        return correctness.compare(
            outputs,
            case.expected,
            case.exact,
            tolerance,
            allow_tf32=self.task.allow_tf32,
            yardsticks=case.yardsticks,
        )

    def matches(self, case: DeviceCase, outputs: list[object]) -> bool:
        """Whether `outputs` are right; quicker than `compare` where large ones are wrong nearly everywhere."""
        if case.nbytes > LARGE_BYTES:
            part = [share(out, 0.0, GLANCE) if is_tensor(out) else out for out in outputs]  # type: ignore[arg-type]
            if self.compare(case.part(0.0, GLANCE), part).status is not None:
                return False
        return self.compare(case, outputs).status is None

    def _keep(self, key: tuple[str, int, str], case: DeviceCase) -> None:
        if case.nbytes > self._budget:
            self._give_back()
            return
        self._kept[key] = case
        while sum(kept.nbytes for kept in self._kept.values()) > self._budget:
            self._kept.popitem(last=False)
            if len(self._kept) < FEW_CASES:
                self._give_back()

    def _give_back(self) -> None:
        """Freed memory goes back to the device, where workers need it; only tasks of gigabytes come here."""
        if self._device != "cpu":
            import torch

            torch.cuda.empty_cache()

    def _model(self, workload: Workload, module: Mapping[str, Any]) -> tuple[Any, list[Any]]:
        """The reference's model with its parameters, and the constructor arguments."""
        with judge.seeded(self._seed, self.task.name, workload.name, "parameters", devices=self._devices()):
            init_args = judge.constructor_args(module)
            with self._placed():
                model = module["Model"](*init_args)
        return model.to(self._device), init_args

    def _make_stand(self, workload: Workload) -> Stand:
        with judge.blame(self.task, workload), self._flags():
            model, init_args = self._model(workload, judge.reference_names(self.task, workload))
            case = self.plain(workload, 0)
            buffers = next(model.buffers(), None) is not None
            changed = reference.run_and_watch(model, case.inputs)[1] if buffers else frozenset()
            return Stand(
                workload,
                init_args,
                {name: tensor.detach().clone() for name, tensor in model.state_dict().items()},
                [value.to("meta") if is_tensor(value) else value for value in case.inputs],
                [out.to("meta") for out in case.expected],
                case.nbytes,
                changed,
            )

    def _make_case(self, workload: Workload, number: int, variant: str) -> DeviceCase | None:
        required = not variant
        change: Callable[[Any], Any] = dict(judge.VARIANTS)[variant] if variant else lambda tensor: tensor
        with judge.blame(self.task, workload), self._flags():
            module = judge.reference_names(self.task, workload)
            model, _ = self._model(workload, module)
            names = (self.task.name, workload.name, str(number))
            with judge.seeded(self._seed, *names, devices=self._devices()), self._placed():
                inputs = [reference.floats_changed(value, change) for value in module["get_inputs"]()]
            inputs = [value.to(self._device) if is_tensor(value) else value for value in inputs]
            try:
                expected = reference.run_reference(model, inputs)
            except (RuntimeError, ValueError, IndexError):
                if required:
                    raise
                return None
            if not required and not all(reference.is_finite(tensor) for tensor in expected):
                return None
            growth = 1.0
            if variant and (plain := self.case(workload, number)) is not None:
                growth = judge.output_growth(plain.expected, expected)
            label = f"{workload.name}, seed {number}" + (f", {variant}" if variant else "")
            large = sum(_nbytes(out) for out in expected) > EXACT_BYTES
            exact = None if large else reference.exact_outputs(model, inputs, expected)
            yards = correctness.measure(expected, exact)
            return DeviceCase(workload, label, inputs, expected, exact, yards, number, variant, growth)

    def _placed(self) -> Any:
        import torch

        return torch.device(self._device) if self._device != "cpu" else nullcontext()

    def _devices(self) -> list[int]:
        import torch

        device = torch.device(self._device)
        return [device.index or 0] if device.type == "cuda" else []

    def _flags(self) -> Any:
        """float32 products of the reference run in TF32 exactly where the task declares it."""
        import torch

        if self._device == "cpu":
            return nullcontext()
        torch.backends.cuda.matmul.allow_tf32 = self.task.allow_tf32
        torch.backends.cudnn.allow_tf32 = self.task.allow_tf32
        return nullcontext()


def _place(layout: Layout, value: Any) -> Any:
    return layout.add_like(value) if is_tensor(value) else value


def share(tensor: torch.Tensor, begin: float, end: float) -> torch.Tensor:
    """A flat view of the elements from `begin` to `end`, shares in [0, 1] of all of them; one element at least."""
    count = tensor.numel()
    first = min(int(begin * count), max(count - 1, 0))
    return tensor.reshape(-1)[first : max(int(end * count), first + 1)]


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _nbytes(value: Any) -> int:
    return value.numel() * value.element_size() if is_tensor(value) else 0
