"""Makes a task folder from a user's own module.

The module is run once, in a process of its own, to learn the shapes and dtypes of its inputs; the folder then holds
the module as `reference.py` and a `task.yaml` with check shapes derived from its parameters. No kernel is invented: a
seed is copied when the user has one.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from evaluator.errors import TaskError, UsageError
from evaluator.loaders.loading import Probed, probed, sizes_of
from evaluator.task import TOLERANCES, load_task, shape_parameters
from evaluator.types import Frozen


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
    parameters = sizes_of(shape_parameters(source, str(module)))
    found = probed(module, source, parameters)
    notes: list[str] = []
    if found.fixed:
        notes.append(f"kept at their values in check shapes, because smaller ones fail: {', '.join(found.fixed)}")
    document = _document(module, source, parameters, found)
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


def _document(path: Path, source: str, parameters: Mapping[str, int], found: Probed) -> dict[str, Any]:
    described = (ast.get_docstring(ast.parse(source)) or f"{path.stem}, from {path.name}").splitlines()[0]
    tolerance = TOLERANCES.get(found.dtype, 0.0)
    return {
        "description": described,
        "family": "",
        "dtype": found.dtype,
        "tolerance": {"atol": tolerance, "rtol": tolerance},
        "op_policy": "mixed",
        "workloads": [{"name": "default", "params": dict(parameters)}],
        "check_shapes": [{"name": shape.name, "params": dict(shape.params)} for shape in found.shapes],
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
