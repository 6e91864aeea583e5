"""`path/to/file.py` (Model, get_inputs, perhaps get_init_inputs) and `path/to/file.py:name`, a function or a module."""

from __future__ import annotations

import ast
from pathlib import Path

from evaluator import syntax
from evaluator.errors import TaskError
from evaluator.loaders.loading import module_task, read_source
from evaluator.nearest import nearest
from evaluator.types import Task

_FUNCTION = """

class Model(__import__("torch").nn.Module):
    def forward(self, *inputs):
        return {name}(*inputs)


def get_init_inputs():
    return []
"""


def load(path: Path, name: str = "Model") -> Task:
    """The task of one file; `name` is a function or a class beside its get_inputs. Raises `TaskError`."""
    source = read_source(path)
    try:
        body = syntax.parse(source).body
    except SyntaxError as error:
        raise TaskError(f"{path}:{error.lineno}:{error.offset}: {error.msg}", "mend the syntax") from None
    defined = {node.name: node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    if name not in defined:
        fix = nearest(name, defined) if name != "Model" else "give file.py:name, or a folder made by `kernevo init`"
        raise TaskError(f"{path}: the module defines no {name}", fix)
    if name != "Model":
        function = isinstance(defined[name], ast.FunctionDef)
        source += _FUNCTION.format(name=name) if function else f"\n\nModel = {name}\n"
    return module_task(path.stem if name == "Model" else f"{path.stem}_{name}", path, source, "mixed")
