"""Static rules about names that lead out of the candidate: imports, dotted paths, private attributes, second names.

A module hands out whatever it imported itself (`torch.nn.modules.module.torch`), so what may follow its name is an
allow-list: `static_members` has it. A library that the task allows is let be, but for the modules that it holds.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Iterator

from evaluator import static_members as members
from evaluator import static_rules as rules
from evaluator.static_reading import FUNCTIONS, Objection, Reading, imported, is_private

_FIX = "kernels need torch, triton and math"


def imports(reading: Reading) -> None:
    """Only modules with a table, or of a library that the task allows, are imported; only members of theirs."""
    for node in reading.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                _importable(reading, node, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = f"{'.' * node.level}{node.module or ''}"
            _importable(reading, node, base)
            for alias in node.names:
                if alias.name == "*":
                    raise Objection(node, f"imports everything from {base}", "import the names that are used")
                _allowed(reading, node, f"{base}.{alias.name}")


def _importable(reading: Reading, node: ast.AST, name: str) -> None:
    if reading.is_library(name):
        _allowed(reading, node, name)
    elif name not in members.MEMBERS:
        raise Objection(node, f"imports {name}", f"{_FIX}; a task may allow more (imports:)")


def paths(reading: Reading) -> None:
    """Every dotted path under an import consists of members that are allowed."""
    for node in reading.nodes:
        if not isinstance(node, ast.Attribute | ast.Name):
            continue
        path = reading.path(node)
        if isinstance(node, ast.Attribute):
            _private(reading, node, path)
            if path and not reading.is_shadowed(node):
                _allowed(reading, node, path)
        if path in members.DECORATORS and not _decorates(reading, node):
            raise Objection(node, f"{path} changes what it is given", "use it as a decorator, with plain settings")


def _allowed(reading: Reading, node: ast.AST, path: str) -> None:
    """Object to a path that no kernel file needs."""
    for prefix, why in rules.FORBIDDEN_PATHS.items():
        if path == prefix or path.startswith(prefix + "."):
            raise Objection(node, f"{prefix} {why}", "leave it out")
    module, *rest = path.split(".")
    for part in rest:
        if part in rules.HOST_MODULES:
            raise Objection(node, f"{path} reaches the module {part}", _FIX)
    if reading.is_library(module):
        _held_by_a_library(node, path, rest)
        return
    while rest and f"{module}.{rest[0]}" in members.MEMBERS:
        module = f"{module}.{rest.pop(0)}"
    if rest and rest[0] not in rules.ALLOWED_DUNDERS:
        _member(node, path, module, rest)


def _held_by_a_library(node: ast.AST, path: str, parts: list[str]) -> None:
    for part in parts:
        if part == "torch" or is_private(part):
            raise Objection(node, f"{path} reaches {part}", "import torch itself, and what the library offers")


def _member(node: ast.AST, path: str, module: str, rest: list[str]) -> None:
    name, *further = rest
    if is_private(name) or any(map(is_private, further)):
        raise Objection(node, f"{path} reaches into the runtime", "leave it out")
    if module.startswith("torch.cuda") and name not in members.MEMBERS[module]:
        raise Objection(node, f"{path} is the judge's", "launch kernels on the current stream and return")
    if module == "torch" and name.startswith("set_"):
        raise Objection(node, f"{path} changes global settings", "leave it out")
    capital = name[:1].isupper()
    known = name in members.MEMBERS[module] or (capital and module in members.CAPITALISED)
    if not known and not _is_a_slip(module, rest):
        raise Objection(node, f"{module}.{name} is nothing that a kernel file needs", _FIX)
    if further and (len(further) > 1 or not (capital or name in members.LOWER_CASE_CLASSES)):
        raise Objection(node, f"{path} reaches into {module}.{name}", f"use {module}.{name} as it is")


def _is_a_slip(module: str, rest: list[str]) -> bool:
    """Whether a name is one that its module does not have: a mistake, of which a later stage says more than reading.

    Names of device libraries are not listed, so that they are taken for one too.
    """
    if module in members.HELD:
        return len(rest) == 1 and rest[0] not in members.HELD[module]
    # Loads torch for a reader that has not, which takes seconds; kernels with such a name are rare.
    try:
        held = hasattr(importlib.import_module(module), rest[0])
    except ImportError:  # a module of other versions
        return False
    return not held and not _is_a_file(f"{module}.{rest[0]}")


def _is_a_file(name: str) -> bool:
    """Whether a module of this name could be imported: nobody may have done so here, though somebody may elsewhere."""
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def _private(reading: Reading, node: ast.Attribute, path: str) -> None:
    """A private attribute is one that the candidate defines itself."""
    name = node.attr
    if not is_private(name) or path in members.MEMBERS or name in rules.ALLOWED_PRIVATE:
        return
    if (path and not reading.is_shadowed(node)) or name in members.MODULE_PRIVATE or name not in reading.defined:
        raise Objection(node, f"{path or name} reaches into the runtime", "leave it out")


def _decorates(reading: Reading, node: ast.expr) -> bool:
    parent = reading.parents.get(id(node))
    if isinstance(parent, ast.Call) and parent.func is node:
        plain = reading.path(node) != "functools.wraps" or (len(parent.args) == 1 and not parent.keywords)
        return plain and _is_a_decorator(reading, parent)
    return isinstance(parent, ast.alias) or _is_a_decorator(reading, node)


def _is_a_decorator(reading: Reading, node: ast.expr) -> bool:
    parent = reading.parents.get(id(node))
    return isinstance(parent, ast.ClassDef | ast.FunctionDef) and any(node is mark for mark in parent.decorator_list)


def names_of_modules(reading: Reading) -> None:
    """A name that a module is given means that module everywhere."""
    if not reading.settled:
        raise Objection(None, "renames what it imports too often", "use the names that are imported")
    meant: dict[str, str] = {}
    for name, path, node in _given(reading):
        before = meant.setdefault(name, path)
        if before != path and (reading.is_module(path) or reading.is_module(before)):
            raise Objection(node, f"{name} stands for {before} and for {path}", "give each a name of its own")
        if reading.is_module(path) and _in_class_body(reading, node):
            raise Objection(node, f"hands the module {path} around", f"write {path}.name where it is used")


def _given(reading: Reading) -> Iterator[tuple[str, str, ast.AST]]:
    for node in reading.nodes:
        for name, path in imported(node):
            yield name, path, node
    for name, value in reading.plain_bindings:
        if path := reading.path(value):
            yield name, path, value


def _in_class_body(reading: Reading, node: ast.AST) -> bool:
    """Whether a statement makes attributes of a class, which are read as `self.name` elsewhere."""
    parent = reading.parents.get(id(node))
    while parent is not None and not isinstance(parent, (*FUNCTIONS, ast.ClassDef)):
        parent = reading.parents.get(id(parent))
    return isinstance(parent, ast.ClassDef)
