"""Makes a task folder from a user's own module.

The module is run once, in a process of its own, to learn the shapes and dtypes of its inputs; the folder then holds
the module as `reference.py` and a `task.yaml` with check shapes derived from its parameters. No kernel is invented: a
seed is copied when the user has one.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from evaluator.errors import TaskError, UsageError
from evaluator.task import TOLERANCES, load_task, shape_parameters
from evaluator.types import Frozen, Scalar

TIMEOUT_S = 300.0
SMALL = (1, 7, 33, 128)
"""Values that small check shapes give every size in turn: one, a prime, a size no block divides, an even one."""

_PROBE = """
import json, runpy, sys, torch
names = runpy.run_path(sys.argv[1])
model = names["Model"](*names.get("get_init_inputs", list)())
inputs = names["get_inputs"]()
with torch.no_grad():
    outputs = model(*inputs)
outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
def describe(values):
    tensors = [v if isinstance(v, torch.Tensor) else None for v in values]
    return [v if v is None else [str(v.dtype).removeprefix("torch."), list(v.shape)] for v in tensors]
print(json.dumps({"inputs": describe(inputs), "outputs": describe(outputs)}))
"""


class Made(Frozen):
    """What was written, and what the user should look at."""

    folder: Path
    notes: tuple[str, ...]


def init_task(module: Path, out: Path, seed: Path | None = None) -> Made:
    """Write the task folder `out` from `module` (KernelBench form: Model, get_inputs, perhaps get_init_inputs).

    Raises UsageError when `out` is in use, and TaskError naming file and line for a module that cannot be a task.
    """
    source = _read(module)
    _require_entry_points(source, module)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out}: already used; nothing was overwritten", "choose another folder with --out")
    seen = _probe(module)
    parameters = {name: value for name, value in shape_parameters(source, str(module)).items() if _is_size(value)}
    notes: list[str] = []
    checks, refused = _check_shapes(source, module, parameters)
    if refused:
        notes.append(f"kept at their values in check shapes, because smaller ones fail: {', '.join(refused)}")
    dtype = next((kind for kind, _ in filter(None, seen["outputs"])), "float32")
    document = _document(module, source, parameters, checks, dtype)
    if seed is None:
        notes.append(f"no seed.py: put a first correct kernel (ModelNew) into {out / 'seed.py'} before a campaign")
    notes.append("bytes_moved and flops are left out: bytes then follow from inputs and outputs, flops count as none")
    _write(out, source, seed, document)
    load_task(str(out))  # what was written must read back
    return Made(folder=out, notes=tuple(notes))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "give the path of a Python file") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text", "give the path of a Python file") from None


def _require_entry_points(source: str, path: Path) -> None:
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise TaskError(f"{path}:{error.lineno}:{error.offset}: {error.msg}", "mend the syntax") from None
    defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    for name, fix in (
        ("Model", "define `class Model(torch.nn.Module)` with the computation to make faster in forward"),
        ("get_inputs", "define `get_inputs()` returning the list of forward's arguments"),
    ):
        if name not in defined:
            others = [node for node in tree.body if isinstance(node, ast.ClassDef)]
            where = f"{path}:{others[0].lineno}" if others and name == "Model" else f"{path}:1"
            raise TaskError(f"{where}: the module defines no {name}", fix)


def _probe(path: Path) -> dict[str, Any]:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE, str(path)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TaskError(f"{path}: running it took longer than {TIMEOUT_S:.0f} s", "use smaller shapes") from None
    if done.returncode != 0:
        raise TaskError(f"{_place(done.stderr, path)}: running it fails: {_last_line(done.stderr)}", "mend the module")
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if not any(seen["outputs"]):
        raise TaskError(f"{path}: forward returns no tensor", "a task compares tensors")
    return seen


def _place(trace: str, path: Path) -> str:
    lines = [line.strip() for line in trace.splitlines() if f'File "{path}"' in line]
    return f"{path}:{lines[-1].split('line ')[1].split(',')[0]}" if lines else str(path)


def _last_line(trace: str) -> str:
    lines = [line for line in trace.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def _is_size(value: Scalar) -> bool:
    return type(value) is int and value > 0


def _check_shapes(source: str, path: Path, parameters: Mapping[str, Scalar]) -> tuple[list[dict[str, Any]], list[str]]:
    """Small shapes that the module runs at, and the parameters that could not be made small."""
    kept: list[str] = []
    for name in parameters:
        if not _runs(source, path, {**_at(parameters, 7, kept), name: 7}) and not _runs(source, path, {name: 7}):
            kept.append(name)
    shapes: list[dict[str, Any]] = []
    for index, label in enumerate(("one", "prime", "ragged", "even")):
        params = _at(parameters, SMALL[index], kept)
        if params and _runs(source, path, params):
            shapes.append({"name": label, "params": params})
    if not shapes:
        return [{"name": "as given", "params": {}}], list(parameters)
    return shapes, kept


def _at(parameters: Mapping[str, Scalar], size: int, kept: list[str]) -> dict[str, int]:
    """Every free parameter near `size`, no two equal, so that a swapped pair cannot hide."""
    free = [name for name in parameters if name not in kept]
    return {name: size if size == 1 else size + 4 * index for index, name in enumerate(free)}


def _runs(source: str, path: Path, params: Mapping[str, int]) -> bool:
    tree = ast.parse(source)
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in params:
            node.value = ast.Constant(params[node.targets[0].id])
    changed = path.with_name(f".{path.stem}.{os.getpid()}.py")
    try:
        changed.write_text(ast.unparse(ast.fix_missing_locations(tree)))
        _probe(changed)
    except TaskError:
        return False
    finally:
        changed.unlink(missing_ok=True)
    return True


def _document(
    path: Path, source: str, parameters: Mapping[str, Scalar], checks: list[dict[str, Any]], dtype: str
) -> dict[str, Any]:
    described = (ast.get_docstring(ast.parse(source)) or f"{path.stem}, from {path.name}").splitlines()[0]
    tolerance = TOLERANCES.get(dtype, 0.0)
    return {
        "description": described,
        "family": "",
        "dtype": dtype,
        "tolerance": {"atol": tolerance, "rtol": tolerance},
        "op_policy": "mixed",
        "workloads": [{"name": "default", "params": dict(parameters)}],
        "check_shapes": checks,
    }


def _write(out: Path, source: str, seed: Path | None, document: dict[str, Any]) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "reference.py").write_text(source, encoding="utf-8")
        if seed is not None:
            shutil.copyfile(seed, out / "seed.py")
        text = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=110)
        (out / "task.yaml").write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{out}: cannot be written: {error.strerror}", "choose another folder with --out") from None
