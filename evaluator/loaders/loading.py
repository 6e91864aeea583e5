"""A task from one module in KernelBench form; the module runs in a process of its own, never in this one."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from evaluator.errors import TaskError
from evaluator.task import TOLERANCES, read_text, shape_parameters
from evaluator.types import OpPolicy, Task, Tolerance, Workload

TIMEOUT_S = 300.0
SMALL = (1, 7, 33, 128)
"""Values that small check shapes give every size in turn: one, a prime, a size no block divides, an even one."""
_PROBE = Path(__file__).with_name("probe.py")
_KEPT = ("PATH", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "OMP_NUM_THREADS")


def module_task(name: str, path: Path, source: str, op_policy: OpPolicy, family: str = "") -> Task:
    """The task of `source`, which stands in `path`. Raises `TaskError`: one line with the file and the cause."""
    parameters = shape_parameters(source, str(path))
    sizes = {key: value for key, value in parameters.items() if type(value) is int and value > 0}
    answer = json.loads(_probed(str(path), source, json.dumps(sizes)))
    if "refused" in answer:
        where = f"{path}:{answer['line']}" if answer["line"] else str(path)
        raise TaskError(f"{where}: {answer['refused']}", _fix(answer["refused"]))
    bound = TOLERANCES.get(answer["dtype"], 0.0)
    shown = (ast.get_docstring(ast.parse(source)) or f"{path.stem}, from {path.name}").splitlines()[0]
    return Task(
        name=name,
        description=shown,
        reference_source=source,
        seed_source=None,
        origin=str(path),
        dtype=answer["dtype"],
        tolerance=Tolerance(atol=bound, rtol=bound),
        op_policy=op_policy,
        family=family,
        workloads=(Workload(name="default", params=sizes),),
        check_shapes=tuple(Workload.model_validate(shape) for shape in answer["shapes"]),
    )


def read_source(path: Path) -> str:
    """The text of a Python file, or of JSON. Raises `TaskError`."""
    return read_text(path, "give the path of a Python file")


def _fix(cause: str) -> str:
    if cause.startswith("ModuleNotFoundError"):
        return "install the package where kernevo runs, or leave the import out"
    return "run the module by hand to see it"


@lru_cache(maxsize=64)
def _probed(path: str, source: str, sizes: str) -> str:
    """What `probe` prints, without a GPU and without this process's environment."""
    given: dict[str, Any] = {"path": path, "source": source, "sizes": json.loads(sizes), "small": SMALL}
    with tempfile.TemporaryDirectory(prefix="kernevo-task-") as folder:
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        environment = {**kept, "CUDA_VISIBLE_DEVICES": "", "HOME": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                [sys.executable, str(_PROBE)],
                input=json.dumps(given),
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                env=environment,
                cwd=folder,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise TaskError(f"{path}: running it took longer than {TIMEOUT_S:.0f} s", "use smaller shapes") from None
    if done.returncode != 0 or not done.stdout.strip():
        raise TaskError(f"{path}: running it ended with code {done.returncode}", "use smaller shapes")
    return done.stdout.splitlines()[-1]
