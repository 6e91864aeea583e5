"""A task from one module in KernelBench form; the module runs in a process of its own, never in this one."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from evaluator import child
from evaluator.errors import TaskError
from evaluator.task import TOLERANCES, read_text, shape_parameters
from evaluator.types import Frozen, OpPolicy, Scalar, Task, Tolerance, Workload

SMALL = (1, 7, 33, 128)
"""Values that small check shapes give every size in turn: one, a prime, a size no block divides, an even one."""
_PROBE = Path(__file__).with_name("probe.py")


class Probed(Frozen):
    """What is known of a module that ran."""

    dtype: str
    """Of the first output."""
    shapes: tuple[Workload, ...]
    """Small shapes that it runs at."""
    fixed: tuple[str, ...]
    """Sizes that cannot be small while the others are as given."""


def sizes_of(parameters: Mapping[str, Scalar]) -> dict[str, int]:
    """Those parameters that can be a tensor's size."""
    return {name: value for name, value in parameters.items() if type(value) is int and value > 0}


class Problem(NamedTuple):
    """One problem of a suite."""

    place: str
    """Where in its suite it is, e.g. `level1/24`."""
    name: str


def module_task(
    name: str, path: Path, source: str, op_policy: OpPolicy, family: str = "", checks: Sequence[Workload] = ()
) -> Task:
    """The task of `source`, which stands in `path`. Raises `TaskError`: one line with the file and the cause.

    Its check shapes are those of `checks` that it runs at, or small ones that are found where none are given.
    """
    parameters = shape_parameters(source, str(path))
    sizes = sizes_of(parameters)
    found = probed(path, source, sizes, checks)
    bound = TOLERANCES.get(found.dtype, 0.0)
    shown = (ast.get_docstring(ast.parse(source)) or f"{path.stem}, from {path.name}").splitlines()[0]
    return Task(
        name=name,
        description=shown,
        reference_source=source,
        seed_source=None,
        origin=str(path),
        dtype=found.dtype,
        tolerance=Tolerance(atol=bound, rtol=bound),
        op_policy=op_policy,
        family=family,
        workloads=(Workload(name="default", params=sizes),),
        check_shapes=found.shapes,
        foreign=True,
    )


def probed(path: Path, source: str, sizes: Mapping[str, int], checks: Sequence[Workload] = ()) -> Probed:
    """What running a module in a process of its own tells. Raises `TaskError`: one line with the file and the cause."""
    answer = json.loads(_probe(str(path), source, json.dumps(sizes), json.dumps([one.model_dump() for one in checks])))
    if "refused" in answer:
        where = f"{path}:{answer['line']}" if answer["line"] else str(path)
        raise TaskError(f"{where}: {answer['refused']}", _fix(answer["refused"]))
    shapes = tuple(Workload.model_validate(shape) for shape in answer["shapes"])
    return Probed(dtype=answer["dtype"], shapes=shapes, fixed=tuple(answer["fixed"]))


def read_source(path: Path) -> str:
    """The text of a Python file, or of JSON. Raises `TaskError`."""
    return read_text(path, "give the path of a Python file")


def _fix(cause: str) -> str:
    if cause.startswith("ModuleNotFoundError"):
        return "install the package where kernevo runs, or leave the import out"
    if cause.startswith("forward is random"):
        return "call self.eval() in the constructor, or leave the randomness out"
    return "run the module by hand to see it"


@lru_cache(maxsize=64)
def _probe(path: str, source: str, sizes: str, checks: str) -> str:
    given = {"path": path, "source": source, "sizes": json.loads(sizes), "small": SMALL, "checks": json.loads(checks)}
    return child.run([str(_PROBE)], json.dumps(given).encode(), path).decode("utf-8", "replace").splitlines()[-1]
