"""Why a task should not be used to tell kernels apart, whatever they are."""

from __future__ import annotations

from typing import Any

from evaluator import correctness, hardware, reference
from evaluator.judge import Judge, blame, check_task, constructor_args, reference_names, seeded
from evaluator.types import Task

DRAWS = 3
"""Other contents that every input gets before the output counts as independent of it."""


def reasons(task: Task, target: str = "h200", seed: int = 0) -> list[str]:
    """One line for each fault, none for a sound task. Runs the reference. Raises `TaskError` where it fails."""
    if task.foreign:
        from evaluator import reference_host

        return reference_host.reasons(task, target, seed)
    constant = check_task(task, seed)
    return [*([constant] if constant else []), *_ignored_inputs(task, seed), *_too_small(task, target, seed)]


def _ignored_inputs(task: Task, seed: int) -> list[str]:
    """Inputs that change no output at the largest check shape."""
    shape = task.check_shapes[-1]
    found = []
    with blame(task, shape):
        module = reference_names(task, shape)
        with seeded(seed, task.name, "ignored inputs"):
            model = module["Model"](*constructor_args(module))
            inputs = list(module["get_inputs"]())
            plain = reference.run_reference(model, inputs)
            for index, value in enumerate(inputs):
                draws = [_other(module, value, index) for _ in range(DRAWS)]
                changed = [draw for draw in draws if draw is not None]
                answers = [
                    reference.run_reference(model, [*inputs[:index], draw, *inputs[index + 1 :]]) for draw in changed
                ]
                if changed and not any(_differs(task, plain, answer) for answer in answers):
                    found.append(f"the output does not depend on input {index} of {len(inputs)}")
    return found


def _other(module: dict[str, Any], value: Any, index: int) -> Any:
    """Other contents for one tensor input, drawn anew or else with noise; None where none are known to be valid."""
    import torch

    if not isinstance(value, torch.Tensor):
        return None
    drawn = list(module["get_inputs"]())[index]
    if not torch.equal(drawn, value):
        return drawn
    return value + torch.randn_like(value) if value.is_floating_point() else None


def _differs(task: Task, plain: list[Any], answer: list[Any]) -> bool:
    return correctness.compare(answer, plain, None, task.tolerance).status is not None


def _too_small(task: Task, target: str, seed: int) -> list[str]:
    """Workloads whose bytes a GPU moves in less time than starting one kernel takes, with no flops declared."""
    machine, judge = hardware.get(target), Judge(task, seed)
    found = []
    for workload in task.workloads:
        moved = workload.bytes_moved or judge.shapes(workload).bytes_moved
        seconds = max(moved / machine.dram_bytes_per_s, (workload.flops or 0) / machine.peak_flops(task.dtype))
        if seconds < machine.launch_s / 2:
            found.append(f"{workload.name} is too small to time: {moved:,} bytes take {seconds * 1e6:.2g} us")
    return found
