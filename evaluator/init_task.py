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
import ast, json, sys, torch
path, settings = sys.argv[1], json.load(sys.stdin)
source = open(path, encoding="utf-8").read()

def run(params):
    tree = ast.parse(source)
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in params:
            node.value = ast.Constant(params[node.targets[0].id])
    names = {"__name__": "module"}
    exec(compile(ast.fix_missing_locations(tree), path, "exec"), names)
    model = names["Model"](*names.get("get_init_inputs", list)())
    with torch.no_grad():
        outputs = model(*names["get_inputs"]())
    tensors = [v for v in (outputs if isinstance(outputs, (tuple, list)) else [outputs]) if isinstance(v, torch.Tensor)]
    return [str(v.dtype).removeprefix("torch.") for v in tensors]

def tried(params):
    try:
        return bool(run(params))
    except Exception:
        return False

first, *others = settings
print(json.dumps({"dtypes": run(first), "works": [tried(params) for params in others]}))
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
    parameters = {name: value for name, value in shape_parameters(source, str(module)).items() if _is_size(value)}
    dtypes, alone = _probe(module, [{}, *({name: SMALL[1]} for name in parameters)])
    if not dtypes:
        raise TaskError(f"{module}: forward returns no tensor", "a task compares tensors")
    notes: list[str] = []
    fixed = [name for name, works in zip(parameters, alone, strict=True) if not works]
    checks = _check_shapes(module, [name for name in parameters if name not in fixed])
    if fixed:
        notes.append(f"kept at their values in check shapes, because smaller ones fail: {', '.join(fixed)}")
    document = _document(module, source, parameters, checks, dtypes[0])
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


def _probe(path: Path, settings: list[dict[str, int]]) -> tuple[list[str], list[bool]]:
    """Run the module once per setting of its parameters, all in one process without a GPU.

    Returns the output dtypes at the first setting, which must work, and whether each other setting works.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE, str(path)],
            input=json.dumps(settings),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TaskError(f"{path}: running it took longer than {TIMEOUT_S:.0f} s", "use smaller shapes") from None
    if done.returncode != 0:
        raise TaskError(f"{_place(done.stderr, path)}: running it fails: {_last_line(done.stderr)}", "mend the module")
    answer = json.loads(done.stdout.splitlines()[-1])
    return list(answer["dtypes"]), list(answer["works"])


def _place(trace: str, path: Path) -> str:
    lines = [line.strip() for line in trace.splitlines() if f'File "{path}"' in line]
    return f"{path}:{lines[-1].split('line ')[1].split(',')[0]}" if lines else str(path)


def _last_line(trace: str) -> str:
    lines = [line for line in trace.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def _is_size(value: Scalar) -> bool:
    return type(value) is int and value > 0


def _check_shapes(path: Path, free: list[str]) -> list[dict[str, Any]]:
    """Small shapes that the module runs at: every free parameter near 1, a prime, a ragged and an even size."""
    wanted = {
        label: {name: size if size == 1 else size + 4 * index for index, name in enumerate(free)}
        for label, size in zip(("one", "prime", "ragged", "even"), SMALL, strict=True)
    }
    _, works = _probe(path, [{}, *wanted.values()])
    shapes = [
        {"name": label, "params": params} for (label, params), fine in zip(wanted.items(), works, strict=True) if fine
    ]
    return shapes if free and shapes else [{"name": "as given", "params": {}}]


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
