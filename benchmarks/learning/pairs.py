"""What is asked in the proof: pairs of a task and a shape, parents, and all answers there are to each."""

from __future__ import annotations

from collections.abc import Sequence

from evaluator.task import load_task
from evaluator.types import KernelSource, Task
from policy.applicable import Applicable
from policy.rewrites.base import RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.catalogue import REWRITES, rewrite_named
from policy.types import RewriteStep

TASKS = ("attention", "cross_entropy", "layer_norm", "matmul", "rms_norm", "softmax", "sum_reduction", "swiglu")
FOLDS = {1: (TASKS[::2], TASKS[1::2]), 2: (TASKS[1::2], TASKS[::2])}
"""Fold -> (tasks trained on, tasks held out). Every other task in alphabetical order, and the halves exchanged: some
tasks' answers all earn nearly the same, so that one half alone could hardly tell policies apart."""
LEFT_OUT = ("alignment_hints", "cache_hints", "loop_range_options")
"""Rewrites with dozens of settings each, of which nearly all measure the same."""
NAMES = tuple(name for name in REWRITES if name not in LEFT_OUT)


def pairs(names: Sequence[str]) -> list[Task]:
    """One task for each (task, shape): the shipped task with one of its workloads, named `task@workload`."""
    return [narrowed(task, number) for task in map(load_task, names) for number in range(len(task.workloads))]


def narrowed(task: Task, number: int) -> Task:
    """The task with one workload only."""
    workload = task.workloads[number]
    return task.model_copy(update={"name": f"{task.name}@{workload.name}", "workloads": (workload,)})


def applicable(task: Task, source: str) -> dict[str, Sequence[RewriteArgs]]:
    """Every answer's name and arguments."""
    return Applicable(NAMES).all(source, RewriteContext.of_task(task))


def children(task: Task, parent: str) -> list[tuple[RewriteStep, KernelSource]]:
    """Every child that one rewrite makes of a parent, by the answer that makes it."""
    context = RewriteContext.of_task(task)
    found = []
    for name, settings in applicable(task, parent).items():
        for args in settings:
            try:
                text = rewrite_named(name).apply(parent, args, context)
            except RewriteError:  # it applies by its own look and then cannot; the answer gives no child
                continue
            found.append((RewriteStep(name=name, args=args.model_dump(mode="json")), KernelSource(text=text)))
    return found


def every_child(task: Task, parent: str) -> list[tuple[RewriteStep, KernelSource]]:
    """The children of a shipped task's parent under any of its shapes, each once: what applies can depend on the
    shape."""
    found: dict[str, tuple[RewriteStep, KernelSource]] = {}
    for number in range(len(task.workloads)):
        found |= {child.sha: (step, child) for step, child in children(narrowed(task, number), parent)}
    return list(found.values())
