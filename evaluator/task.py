"""Tasks: where they are, how their files are read, and how a workload's parameters reach the reference.

A task is a folder with `task.yaml`, `reference.py` (KernelBench form: `Model`, `get_inputs`, `get_init_inputs`) and
usually `seed.py` (a first correct `ModelNew`). Files are read as text here; nothing is imported or run.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evaluator import syntax
from evaluator.errors import TaskError, UsageError
from evaluator.nearest import nearest
from evaluator.types import Scalar, Task, Tolerance, Workload
from evaluator.yaml_reader import Document, parse

SHIPPED = Path(__file__).parent / "tasks"

TOLERANCES: dict[str, float] = {
    "float64": 1e-7,
    "float32": 1e-4,
    "float16": 1e-2,
    "bfloat16": 1e-2,
    "float8_e4m3fn": 1e-1,
    "float8_e5m2": 1e-1,
}
"""atol = rtol where a task names none (EVALUATION's table); everything else is compared exactly."""


def list_tasks() -> list[str]:
    """Names of the shipped tasks, sorted."""
    return sorted(path.parent.name for path in SHIPPED.glob("*/task.yaml"))


def load_task(spec: str) -> Task:
    """A shipped task by name, a task folder by path, or what `evaluator.loaders` reads, which runs a process.

    Raises TaskError naming what is wrong and the nearest name.
    """
    from evaluator import loaders

    if spec in list_tasks():
        return read_folder(SHIPPED / spec)
    path = Path(spec)
    if path.is_dir():
        return read_folder(path)
    if loaders.is_foreign(spec):
        return loaders.load(spec)
    if "/" in spec or path.suffix:
        raise TaskError(f"{spec}: no such task folder", "give a folder with task.yaml, or a shipped task's name")
    raise TaskError(f"unknown task {spec!r}", nearest(spec, list_tasks()))


def read_folder(folder: Path) -> Task:
    """The task of one folder. Raises TaskError with file:line:column."""
    yaml_path = folder / "task.yaml"
    document = _document(yaml_path)
    raw: dict[str, Any] = document.data
    reference = read_text(folder / "reference.py")
    parameters = shape_parameters(reference, str(folder / "reference.py"))
    seed = folder / "seed.py"
    fields = dict(raw)
    for key in ("workloads", "check_shapes"):
        entries = raw.get(key) or ()
        if not isinstance(entries, list | tuple):
            raise TaskError(f"{document.value_position((key,))}: {key} is a list", "- {name: small, params: {M: 4}}")
        fields[key] = tuple(
            _workload(entry, parameters, document.value_position((key, index))) for index, entry in enumerate(entries)
        )
    if "tolerance" not in raw:
        bound = TOLERANCES.get(str(raw.get("dtype")), 0.0)
        fields["tolerance"] = Tolerance(atol=bound, rtol=bound)
    for key in ("input_precisions", "imports"):
        if isinstance(raw.get(key), list):
            fields[key] = tuple(raw[key])
    fields.setdefault("name", folder.resolve().name)
    fields.update(
        reference_source=reference,
        seed_source=read_text(seed) if seed.is_file() else None,
        origin=str(folder),
    )
    return _validated(fields, document)


def _document(path: Path) -> Document:
    try:
        document = parse(read_text(path), str(path))
    except UsageError as error:
        raise TaskError(error.message, error.hint) from None
    if not isinstance(document.data, dict):
        raise TaskError(f"{path}:1:1: a task file is a mapping of keys to values", "start with `description: …`")
    return document


FROM_FILES = {"reference_source", "seed_source", "origin", "foreign"}
"""Fields of a task that `task.yaml` does not hold."""


def _validated(fields: Mapping[str, Any], document: Document) -> Task:
    known = set(Task.model_fields) - FROM_FILES
    for key in document.data:
        if key not in known:
            raise TaskError(f"{document.key_position((key,))}: unknown key {key}", nearest(key, known))
    try:
        return Task.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        where = document.value_position(first["loc"])
        raise TaskError(f"{where}: {name}: {first['msg']}", "docs/tasks.md describes every key") from None


def read_text(path: Path, fix: str = "a task folder holds task.yaml and reference.py") -> str:
    """A file of a task. Raises TaskError with `fix` where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise TaskError(f"{path}: {error.strerror}", fix) from None
    except UnicodeDecodeError:
        raise TaskError(f"{path}: not UTF-8 text", "save the file as UTF-8") from None


def _workload(entry: object, parameters: Mapping[str, Scalar], where: str) -> Workload:
    if not isinstance(entry, dict) or not isinstance(entry.get("params", {}), dict):
        raise TaskError(f"{where}: each entry is a mapping with name and params", "{name: small, params: {M: 4}}")
    params = dict(entry.get("params", {}))
    for name in params:
        if name not in parameters:
            hint = nearest(str(name), parameters)
            raise TaskError(f"{where}: parameter {name} is no top-level literal of reference.py", hint)
    fields = {**entry, "params": params}
    values = {**parameters, **params}
    for key in ("bytes_moved", "flops"):
        if key in fields:
            fields[key] = arithmetic(str(fields[key]), values, where)
    fields.setdefault("name", "x".join(str(value) for value in params.values()) or "default")
    try:
        return Workload.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise TaskError(f"{where}: {first['loc'][0]}: {first['msg']}", "name, params, bytes_moved, flops") from None


def shape_parameters(source: str, where: str) -> dict[str, Scalar]:
    """Top-level `NAME = literal` assignments of a reference: what a workload may replace."""
    found: dict[str, Scalar] = {}
    for node in _parse(source, where).body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            try:
                value = ast.literal_eval(node.value)
            except ValueError:
                continue
            if isinstance(value, int | float | bool | str):
                found[node.targets[0].id] = value
    return found


def reference_module_source(task: Task, workload: Workload) -> str:
    """The reference with a workload's parameters in place of the literals, so that derived constants follow.

    Raises TaskError for a parameter the reference does not define.
    """
    tree = _parse(task.reference_source, task.origin)
    missing = dict(workload.params)
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in missing:
                node.value = ast.Constant(missing.pop(name))
    if missing:
        known = shape_parameters(task.reference_source, task.origin)
        name = next(iter(missing))
        raise TaskError(f"{task.origin}: workload {workload.name} sets unknown {name}", nearest(name, known))
    return ast.unparse(ast.fix_missing_locations(tree))


def _parse(source: str, where: str) -> ast.Module:
    try:
        return syntax.parse(source)
    except SyntaxError as error:
        raise TaskError(f"{where}:{error.lineno}:{error.offset}: {error.msg}", "mend the syntax") from None


_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def arithmetic(expression: str, values: Mapping[str, Scalar], where: str) -> int:
    """An expression of numbers, parameters and + - * / // % ** as a whole number. Nothing is executed."""
    try:
        value = _term(syntax.parse_expression(expression).body, values)
    except KeyError as error:
        name = str(error.args[0])
        raise TaskError(f"{where}: {expression!r} uses unknown {name}", nearest(name, values)) from None
    except (SyntaxError, TypeError, ZeroDivisionError) as error:
        raise TaskError(f"{where}: {expression!r} is no arithmetic: {error}", "e.g. 2 * M * N * 4") from None
    return math.ceil(value)


def _term(node: ast.expr, values: Mapping[str, Scalar]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name):
            value = values[name]
            if isinstance(value, str):
                raise TypeError(f"{name} is a text")
            return value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_term(left, values), _term(right, values))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_term(operand, values)
    raise TypeError(f"{ast.unparse(node)} is not allowed")
