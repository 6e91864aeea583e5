"""The `correct` stage of the gpu evaluator: raw outputs of many runs against values the worker never sees.

Every benchmark workload and every check shape runs on several secret seeds, the check shapes on changed values as
well. Inputs lie at two places that are used in turn, so that from the third run on each call finds other contents at
addresses it has seen before: an output remembered by address, by shape or from the first call is wrong then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evaluator import judge
from evaluator.cascade import Verdict
from evaluator.correctness import Comparison
from evaluator.gpu_cases import LARGE_BYTES, SEEDS, Carved, DeviceCase, DeviceCases, Stand
from evaluator.gpu_host import GpuWorker, WorkerError
from evaluator.gpu_memory import Arena, Place, is_tensor, settle, view
from evaluator.gpu_recall import check_recall
from evaluator.gpu_refusal import RefusedError, check_layout, refused, reports, verdict
from evaluator.types import EvalStatus, Task, Workload

if TYPE_CHECKING:
    import torch

ZONE = 0xFF
POISONS = (float("nan"), 1e30)
PLACES = 2
_MAX_DIMS = 16


@dataclass
class Bench:
    """One candidate's worker and the memory it shares with the judge."""

    worker: GpuWorker
    arena: Arena
    seconds: float
    """Limit of one command."""
    keep_bytes: int
    """Of outputs that the worker may keep until the judge has chosen which to look at."""

    def request(self, command: str, **arguments: Any) -> Any:
        """One command; raises `WorkerError`.

        A worker that gave no answer is dead by then: what it left running on the device would be in the times of
        whoever gets the GPU next, and that may happen as soon as the caller lets go of its lock.
        """
        try:
            return self.worker.request(command, self.seconds, **arguments)
        except WorkerError as failure:
            if failure.status is not EvalStatus.RUNTIME_ERROR:
                self.worker.kill()
            raise

    def lay_out(self, stand: Stand, carved: Carved) -> None:
        """Red zones and parameters of a workload, in the arena."""
        fill_zones(self.arena, carved)
        for name, tensor in stand.state.items():
            view(self.arena, carved.state[name]).copy_(tensor)
        settle(self.arena)

    def build(self, stand: Stand, carved: Carved, name: str | None = None) -> None:
        """The worker's model of a workload, under the workload's name when left out. Raises `WorkerError`."""
        self.request(
            "build",
            name=stand.workload.name if name is None else name,
            init_args=stand.init_args,
            state={key: place.model_dump() for key, place in carved.state.items()},
            sets=sendable(carved.sets),
        )

    def kept(self, index: int, carved: Carved) -> tuple[dict[str, Any], list[object]]:
        """What the worker says of a call whose outputs it kept, and these outputs. They last until the next run."""
        poison_sinks(self.arena, carved)
        settle(self.arena)
        sink = carved.sinks[0]
        answer = self.request("output", index=index, sink=sendable(sink))
        return answer, taken(self.arena, reports(answer, "outputs"), sink)


@dataclass
class Findings:
    """What the checks learned beside their verdict."""

    passed: int = 0
    total: int = 0
    max_error: float | None = None
    kernels: set[str] = field(default_factory=set)


class Checker:
    """Runs one workload's checks on one bench."""

    def __init__(self, cases: DeviceCases, bench: Bench, stand: Stand, findings: Findings) -> None:
        self.cases = cases
        self.task: Task = cases.task
        self.bench = bench
        self.stand = stand
        self.findings = findings
        self.carved: Carved = stand.carve(PLACES, 2)
        self._earlier: list[tuple[int, str]] = []

    def start(self) -> None:
        """Parameters in place, red zones filled, the model built. Raises `WorkerError` and `RefusedError`."""
        self.bench.lay_out(self.stand, self.carved)
        self.bench.build(self.stand, self.carved)

    def check(self, case: DeviceCase, place: int, poison: float | None = None) -> list[torch.Tensor]:
        """One run of one case, judged; returns its outputs, which last until the next run. Raises `RefusedError`."""
        answer, outputs = self.run(case, place, poison)
        where = case.label
        if answer["written_outside"]:
            what = str(answer["written_outside"][0])
            raise refused(EvalStatus.OUT_OF_BOUNDS, f"{where}: writes outside of {what}")
        self._check_memory(case, place)
        if not answer["launches"] and self.findings.kernels:
            raise refused(EvalStatus.REPLAY, f"{where}: launches nothing, though earlier calls launched kernels")
        if not answer["launches"]:
            raise refused(EvalStatus.FALLBACK, f"{where}: launches no Triton kernel of its own")
        if answer["seen_before"]:
            raise refused(
                EvalStatus.REPLAY,
                f"{where}: returns memory that an earlier call returned",
                "allocate an output per call",
            )
        self.findings.kernels.update(str(name) for name in answer["launches"])
        found = self.cases.compare(case, outputs)
        if found.max_error is not None:
            self.findings.max_error = max(self.findings.max_error or 0.0, found.max_error)
        if found.status is not None:
            late = taken(self.bench.arena, reports(answer, "outputs"), self.carved.sinks[1])
            raise RefusedError(self._why(case, place, (outputs, late), found, poison))
        check_layout(case, reports(answer, "outputs"))
        return tensors(outputs)

    def put(self, case: DeviceCase, place: int) -> None:
        """The case's inputs, at a place, and buffers as they were; `settle` before the worker looks."""
        put_inputs(self.bench.arena, case, self.carved.sets[place])
        for name in self.stand.changed:
            view(self.bench.arena, self.carved.state[name]).copy_(self.stand.state[name])

    def run(self, case: DeviceCase, place: int, poison: float | None) -> tuple[dict[str, Any], list[object]]:
        """One run; its report and its outputs as they were in stream order. They last until the next run.

        The second sink holds them as they were when the device had come to rest.
        """
        arena = self.bench.arena
        self.put(case, place)
        poison_sinks(arena, self.carved)
        settle(arena)
        sinks = [sendable(sink) for sink in self.carved.sinks]
        answer = self.bench.request("run", name=self.stand.workload.name, number=place, sinks=sinks, poison=poison)
        return answer, taken(arena, reports(answer, "outputs"), self.carved.sinks[0])

    def _check_memory(self, case: DeviceCase, place: int) -> None:
        """Inputs and parameters unchanged, zones untouched."""
        arena = self.bench.arena
        given = {
            f"input {index}": pair for index, pair in enumerate(zip(case.inputs, self.carved.sets[place], strict=True))
        }
        for name in self.stand.state.keys() - self.stand.changed:
            tensor = self.stand.state[name]
            given[f"parameter {name}"] = (tensor, self.carved.state[name])
        for name, (value, at) in given.items():
            if is_tensor(value) and not same_bits(view(arena, at), value):
                raise refused(EvalStatus.INPUT_MUTATED, f"{case.label}: the kernel changed {name}")
        for begin, end in self.carved.layout.zones():
            if bool((arena.bytes[begin:end] != ZONE).any()):
                raise refused(EvalStatus.OUT_OF_BOUNDS, f"{case.label}: writes outside of its inputs or parameters")

    def _why(
        self,
        case: DeviceCase,
        place: int,
        outputs: tuple[list[object], list[object]],
        found: Comparison,
        poison: float | None,
    ) -> Verdict:
        """The most telling name for a wrong output, which is given in stream order and with the device at rest."""
        if self.cases.matches(case, outputs[1]):
            return verdict(
                EvalStatus.DEFERRED_WORK,
                f"{case.label}: the output was written after the call's stream had moved on",
                "work on torch's current stream",
            )
        for number, variant in self._earlier:
            earlier = self.cases.case(self.stand.workload, number, variant)
            if earlier is not None and self.cases.matches(earlier, outputs[0]):
                return verdict(EvalStatus.REPLAY, f"{case.label}: returns the answer to an earlier call's inputs")
        if found.status in (EvalStatus.WRONG_VALUE, EvalStatus.NON_FINITE, EvalStatus.PRECISION):
            if self._depends_on_poison(case, place, outputs[0], poison):
                text = f"{case.label}: the output depends on what freshly allocated memory held"
                return verdict(EvalStatus.UNINITIALISED, text, "write every element of what forward allocates")
            if poison is None and self._right_only_when_watched(case, place):
                text = f"{case.label}: right only while what forward allocates is filled and lies between red zones"
                return verdict(EvalStatus.HARNESS_TAMPER, text, "do not look at what surrounds an allocation")
            if self._depends_on_zones(case, place):
                text = f"{case.label}: the output depends on what lies behind or before its inputs"
                return verdict(EvalStatus.OUT_OF_BOUNDS, text, "mask loads at the tensors' ends")
        return verdict(found.status, f"{case.label}: {found.reason}", f"{case.label}\n{found.explain}")

    def _depends_on_poison(self, case: DeviceCase, place: int, first: list[object], poison: float | None) -> bool:
        a = copies(first if poison is not None else self.run(case, place, POISONS[0])[1])
        if same_outputs(a, self.run(case, place, POISONS[1])[1]):
            return False
        return same_outputs(a, self.run(case, place, POISONS[0])[1])

    def _right_only_when_watched(self, case: DeviceCase, place: int) -> bool:
        """Twice over, so that no kernel that is right now and then is accused."""
        for poison, right in ((POISONS[0], True), (None, False)) * 2:
            found = self.cases.compare(case, self.run(case, place, poison)[1])
            if (found.status is None) is not right:
                return False
        return True

    def _depends_on_zones(self, case: DeviceCase, place: int) -> bool:
        """On poisoned memory, whose contents are the same each time."""
        before = copies(self.run(case, place, POISONS[0])[1])
        fill_zones(self.bench.arena, self.carved, 0)
        try:
            if same_outputs(before, self.run(case, place, POISONS[0])[1]):
                return False
        finally:
            fill_zones(self.bench.arena, self.carved)
        # A kernel that never answers the same twice says nothing about zones.
        return same_outputs(before, self.run(case, place, POISONS[0])[1])

    def note(self, case: DeviceCase) -> None:
        """Remember a case, so that its answer is recognised when it comes again."""
        self._earlier = [*self._earlier[-3:], (case.number, case.variant)]


def check_workload(checker: Checker, benchmark: bool) -> None:
    """All checks of one workload. Raises `RefusedError` and `WorkerError`."""
    checker.start()
    workload, cases = checker.stand.workload, checker.cases
    numbers = range(SEEDS if benchmark else 2)
    planned = [(number, "") for number in numbers]
    if not benchmark:
        planned += [(0, name) for name, _ in judge.VARIANTS]
    made = [pair for pair in planned if not pair[1] or cases.case(workload, *pair) is not None]
    for turn, (number, variant) in enumerate(made):
        case = cases.case(workload, number, variant)
        assert case is not None
        poisons: Sequence[float | None] = POISONS if not checker.findings.passed or turn == 0 else (None,)
        repeated = turn == len(made) - 1 and not cases.task.allow_atomics
        outputs = _agreeing(checker, case, turn % PLACES, poisons, repeated)
        checker.note(case)
        checker.findings.passed += 1
        if repeated:
            _repeatable(checker, case, turn % PLACES, outputs)
    if benchmark:
        check_recall(checker)


def planned_checks(task: Task) -> int:
    """Checks of one candidate when every variant is allowed."""
    return len(task.workloads) * SEEDS + len(task.check_shapes) * (2 + len(judge.VARIANTS))


def _agreeing(
    checker: Checker, case: DeviceCase, place: int, poisons: Sequence[float | None], kept: bool
) -> list[torch.Tensor]:
    """The outputs, which outlive the next run where there is one in here or they are `kept`."""
    outputs = checker.check(case, place, poisons[0])
    if kept or len(poisons) > 1:
        outputs = [out.clone() for out in outputs]
    for poison in poisons[1:]:
        again = checker.check(case, place, poison)
        if not checker.task.allow_atomics and not all(same_bits(a, b) for a, b in zip(outputs, again, strict=True)):
            text = f"{case.label}: the output depends on what freshly allocated memory held"
            third = checker.check(case, place, poisons[0])
            if all(same_bits(a, b) for a, b in zip(outputs, third, strict=True)):
                raise refused(EvalStatus.UNINITIALISED, text, "write every element of what forward allocates")
            raise refused(EvalStatus.NONDETERMINISTIC, f"{case.label}: equal inputs gave different outputs")
    return outputs


def _repeatable(checker: Checker, case: DeviceCase, place: int, outputs: list[torch.Tensor]) -> None:
    # A race has as many chances to show in one large output as in several small ones.
    for _ in range(1 if case.nbytes > LARGE_BYTES else 2):
        again = checker.check(case, place)
        if not all(same_bits(a, b) for a, b in zip(outputs, again, strict=True)):
            raise refused(
                EvalStatus.NONDETERMINISTIC,
                f"{case.label}: equal inputs gave different outputs",
                "look for a race, or for atomics whose order shows in the result",
            )


def taken(arena: Arena, shown: list[Any], sink: Sequence[Any]) -> list[object]:
    """The outputs that a worker reports: what lies in the sink where they fit it, shapes alone elsewhere."""
    import torch

    outputs: list[object] = []
    for index, report in enumerate(shown):
        if isinstance(report, str):
            outputs.append(report)
            continue
        try:
            shape = [int(size) for size in report["shape"]]
            dtype = getattr(torch, str(report["dtype"]), None)
        except (KeyError, TypeError, ValueError):
            raise refused(EvalStatus.HARNESS_TAMPER, "the worker reports no shape and dtype") from None
        if (
            not isinstance(dtype, torch.dtype)
            or len(shape) > _MAX_DIMS
            or any(not 0 <= size < 1 << 48 for size in shape)
        ):
            raise refused(EvalStatus.HARNESS_TAMPER, "the worker reports an impossible shape or dtype")
        at = sink[index] if index < len(sink) else None
        if at is not None and tuple(shape) == at.shape and str(report["dtype"]) == at.dtype:
            outputs.append(view(arena, at))
        else:
            outputs.append(torch.empty(shape, dtype=dtype, device="meta"))
    return outputs


def tensors(outputs: Sequence[object]) -> list[torch.Tensor]:
    """The tensors among outputs."""
    import torch

    return [out for out in outputs if isinstance(out, torch.Tensor)]


def copies(outputs: Sequence[object]) -> list[object]:
    """Outputs that outlive the next run."""
    return [out.clone() if is_tensor(out) else out for out in outputs]  # type: ignore[attr-defined]


def same_outputs(first: Sequence[object], second: Sequence[object]) -> bool:
    """Whether two runs returned bitwise the same."""
    if len(first) != len(second):
        return False
    return all(same_bits(a, b) if is_tensor(a) and is_tensor(b) else a == b for a, b in zip(first, second, strict=True))


def same_bits(first: Any, second: Any) -> bool:
    """Whether two tensors hold the same bits (NaN equals itself)."""
    import torch

    alike = bool(first.shape == second.shape and first.dtype == second.dtype)
    if not alike or first.is_meta or second.is_meta:
        return alike
    if first.dtype.itemsize in _BITS and first.dtype != torch.bool:
        kind = getattr(torch, _BITS[first.dtype.itemsize])
        return bool(torch.equal(first.view(kind), second.to(first.device).view(kind)))
    return bool(torch.equal(first, second.to(first.device)))


_BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


def fill_zones(arena: Arena, carved: Carved, value: int = ZONE) -> None:
    """Red zones filled with a byte: NaN in every float format, or zero."""
    for begin, end in carved.layout.zones():
        arena.bytes[begin:end] = value


def put_inputs(arena: Arena, case: DeviceCase, places: Sequence[Any]) -> None:
    """The case's tensors, at places of the arena."""
    for value, at in zip(case.inputs, places, strict=True):
        if is_tensor(value):
            view(arena, at).copy_(value)


def poison_sinks(arena: Arena, carved: Carved) -> None:
    """No earlier run's output may be taken for this one's."""
    for sink in carved.sinks:
        for place in sink:
            arena.bytes[place.offset : place.offset + place.nbytes] = ZONE


def sendable(value: Any) -> Any:
    """A place, or a list with places in it, as data; other values as they are."""
    if isinstance(value, list):
        return [sendable(item) for item in value]
    return value.model_dump() if isinstance(value, Place) else value


def in_order(task: Task) -> Iterator[tuple[Workload, bool]]:
    """Check shapes first, since they are quick and catch most; then benchmark workloads (True)."""
    yield from ((workload, False) for workload in task.check_shapes)
    yield from ((workload, True) for workload in task.workloads)
