"""The static stage: reads a candidate's syntax tree and refuses what no honest kernel needs. Runs nothing.

This stage saves work and gives clear words; safety does not depend on it (the worker is confined) and neither does
correctness (the judge compares outputs). What passes here can still be refused by every later stage.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from evaluator import static_rules as rules
from evaluator.static_launches import kernels_are_tritons, launches
from evaluator.static_members import MODULE_PRIVATE
from evaluator.static_operations import operations
from evaluator.static_paths import imports, names_of_modules, paths
from evaluator.static_reading import Objection, Reading, is_private, parameters, root
from evaluator.syntax import parse
from evaluator.types import EvalStatus, Frozen, Task

MAX_SOURCE_BYTES = 512 << 10
ENTRY = "ModelNew"


class StaticVerdict(Frozen):
    """Clean when `status` is None."""

    status: EvalStatus | None = None
    reason: str = ""
    """One line, with the line number where there is one."""
    explain: str = ""
    """The reason, the source line, and what to do instead."""
    line: int | None = None


CLEAN = StaticVerdict()


def check(source: str, task: Task) -> StaticVerdict:
    """The static verdict on one source. Never raises for anything a candidate can contain."""
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > MAX_SOURCE_BYTES:
        reason = f"the source is {size >> 10} KiB long, more than {MAX_SOURCE_BYTES >> 10} KiB"
        return StaticVerdict(status=EvalStatus.REJECTED_STATIC, reason=reason, explain=reason)
    try:
        tree = parse(source)
    except SyntaxError as error:
        return _syntax_verdict(error)
    except (ValueError, RecursionError, MemoryError) as error:
        reason = f"the source cannot be parsed: {error or type(error).__name__}"
        return StaticVerdict(status=EvalStatus.SYNTAX_ERROR, reason=reason, explain=reason)
    try:
        return _verdict(source, tree, task)
    except RecursionError:
        reason = "the source is nested too deeply to be checked"
        return StaticVerdict(status=EvalStatus.REJECTED_STATIC, reason=reason, explain=reason)


def _syntax_verdict(error: SyntaxError) -> StaticVerdict:
    text = (error.text or "").rstrip("\n")
    caret = " " * max(0, (error.offset or 1) - 1) + "^" if text else ""
    reason = f"line {error.lineno}: {error.msg}"
    explain = "\n".join(part for part in (reason, text, caret) if part)
    return StaticVerdict(status=EvalStatus.SYNTAX_ERROR, reason=reason, explain=explain, line=error.lineno)


def _verdict(source: str, tree: ast.Module, task: Task) -> StaticVerdict:
    entry = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == ENTRY), None)
    if entry is None:
        reason = f"there is no class {ENTRY}"
        return StaticVerdict(
            status=EvalStatus.MISSING_ENTRY_POINT,
            reason=reason,
            explain=f"{reason}\nwrite `class {ENTRY}(torch.nn.Module)` with the reference's constructor and forward",
        )
    try:
        reading = Reading(tree, entry, task)
        for rule in RULES:
            rule(reading)
    except Objection as objection:
        return _objected(source, objection)
    return CLEAN


def _objected(source: str, objection: Objection) -> StaticVerdict:
    line = objection.line
    where = f"line {line}: " if line else ""
    lines = re.split(r"\r\n|\r|\n", source)  # as the parser counts them; str.splitlines knows more ends
    quoted = lines[line - 1].strip()[:200] if line and line <= len(lines) else ""
    said = " ".join(objection.reason.split())
    explain = "\n".join(part for part in (f"{where}{said}", quoted, objection.fix) if part)
    return StaticVerdict(status=EvalStatus.REJECTED_STATIC, reason=f"{where}{said}", explain=explain, line=line)


def _names(reading: Reading) -> None:
    for node in reading.nodes:
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.Yield | ast.YieldFrom):
            raise Objection(node, "suspends its work", "compute the result before forward returns")
        if isinstance(node, ast.Call) and _makes_class(node):
            raise Objection(node, "makes a class at run time", "write the class out")
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        if node.id.startswith("__") and node.id.endswith("__") and node.id not in rules.ALLOWED_NAMES:
            raise Objection(node, f"{node.id} reaches into the interpreter", "leave it out")
        why = rules.FORBIDDEN_NAMES.get(node.id)
        if why and not _is_local(reading, node):
            raise Objection(node, f"{node.id} {why}", "leave it out")
        if node.id == "Model" and "Model" not in reading.written:
            raise Objection(node, "uses the reference's class Model", "compute the result in Triton")


def _makes_class(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "type" and len(call.args) != 1


def _is_local(reading: Reading, name: ast.Name) -> bool:
    """Whether a name like `input` is a function's own parameter or variable rather than Python's function."""
    for function in reading.functions_around(name):
        inside = list(ast.walk(function))
        if any(isinstance(node, ast.Global | ast.Nonlocal) and name.id in node.names for node in inside):
            return False
        if any(arg.arg == name.id for arg in parameters(function)):
            return True
        if any(
            isinstance(node, ast.Name) and node.id == name.id and isinstance(node.ctx, ast.Store) for node in inside
        ):
            return True
    return False


def _attributes(reading: Reading) -> None:
    for node in reading.nodes:
        match node:
            case ast.Attribute(attr=attr):
                _attribute(reading, node, attr)
            case ast.MatchClass(kwd_attrs=attrs):
                # `case Thing(attr=name)` reads an attribute too.
                for attr in attrs:
                    _attribute(reading, node, attr)
                    if attr in rules.COMPUTING or is_private(attr):
                        raise Objection(node, f"reads {attr} through a pattern", "name the attribute")
            case ast.Constant(value="meta"):
                raise Objection(node, "the meta device tells a judged call from a timed one", "leave it out")


def _attribute(reading: Reading, node: ast.AST, name: str) -> None:
    if name.startswith("__") and name.endswith("__") and name not in rules.ALLOWED_DUNDERS:
        raise Objection(node, f"reaches {name}", "leave it out")
    path = reading.path(node) if isinstance(node, ast.Attribute) else ""
    named = reading.is_module(path) or (reading.is_library(path) and name == "triton")
    if name in rules.FORBIDDEN_ATTRIBUTES and not named:
        raise Objection(node, f"{path or name} {rules.FORBIDDEN_ATTRIBUTES[name]}", "leave it out")
    if name.startswith("register_") and name.endswith("_hook"):
        raise Objection(node, f"{name} runs code outside of the forward", "leave it out")
    if name == "format" and not path and not _is_plain_template(node):
        raise Objection(node, "format may read attributes that cannot be read here", "use an f-string")


def _is_plain_template(node: ast.AST) -> bool:
    """Whether text is written out and its `{…}` name no attributes or elements."""
    match node:
        case ast.Attribute(value=ast.Constant(value=str() as text)):
            return re.search(r"\{[^{}:!]*[.\[]", text) is None
    return False


def _patches(reading: Reading) -> None:
    """Libraries, kernels and classes stay what they are."""
    for node in reading.nodes:
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            _changed(reading, node)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            path = reading.path(node)
            if reading.is_module(path) and not _module_is_written_out(reading, node):
                raise Objection(node, f"hands the module {path} around", f"write {path}.name where it is used")
        for name in _rebound(node):
            if name in reading.aliases and reading.is_module(_imported(reading, name)):
                raise Objection(node, f"rebinds {name}", "libraries must stay as they are")


def _changed(reading: Reading, node: ast.Attribute | ast.Subscript) -> None:
    first = root(node)
    if isinstance(node, ast.Attribute) and node.attr in ("forward", "apply"):
        raise Objection(node, f"replaces {node.attr}", "write the work into the class's forward")
    if isinstance(node, ast.Attribute) and not isinstance(first, ast.Name):
        raise Objection(node, f"changes {ast.unparse(node)[:60]}", "objects of others must stay as they are")
    if not isinstance(first, ast.Name):
        return
    if first.id in reading.aliases or (isinstance(node, ast.Attribute) and first.id in reading.written):
        raise Objection(node, f"changes {ast.unparse(node)[:60]}", "libraries must stay as they are")


def _module_is_written_out(reading: Reading, node: ast.expr) -> bool:
    match reading.parents.get(id(node)):
        case ast.Attribute() | ast.Expr():
            return True
        case ast.Assign(targets=targets):
            return all(isinstance(target, ast.Name) for target in targets)
        case ast.AnnAssign(target=ast.Name()) | ast.NamedExpr():
            return True
    return False


def _rebound(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return [name]
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
            return [name]
        case ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
            return [name]
    return []


def _imported(reading: Reading, name: str) -> str:
    """The path of a name that an import statement binds; "" for names that are only assigned one."""
    return reading.imports.get(name, "")


def _classes(reading: Reading) -> None:
    """The entry class is what it seems, and no class answers for a tensor."""
    for node in reading.nodes:
        match node:
            case ast.ClassDef(name=name) if name == ENTRY and node is not reading.entry:
                raise Objection(node, f"defines {ENTRY} twice", "define it once")
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) if name == ENTRY:
                raise Objection(node, f"rebinds {ENTRY}", "define it once")
            case ast.ClassDef(bases=bases, keywords=keywords):
                if any(reading.path(base) == "torch.Tensor" for base in bases):
                    raise Objection(node, "defines a tensor class", "return an exact torch.Tensor")
                if keywords:
                    raise Objection(node, f"gives the class {node.name} a metaclass", "leave it out")
                _methods(node)
    if reading.entry.decorator_list:
        raise Objection(reading.entry, f"decorates {ENTRY}", "leave the class as it is written")


def _methods(owner: ast.ClassDef) -> None:
    names = [node.name for node in owner.body if isinstance(node, ast.FunctionDef)]
    for part in (part for node in owner.body for part in ast.walk(node)):
        kept = part.id if isinstance(part, ast.Name) else part.name if isinstance(part, ast.FunctionDef) else ""
        if kept in MODULE_PRIVATE:
            raise Objection(part, f"defines {kept}, which modules keep for themselves", "give it another name")
    for node in owner.body:
        if isinstance(node, ast.FunctionDef):
            special = node.name.startswith("__") and node.name.endswith("__")
            if special and (node.name not in rules.DEFINABLE_DUNDERS or (owner.name, node.name) == (ENTRY, "__call__")):
                raise Objection(node, f"defines {node.name}", "write the work into forward")
            if node.name == "forward" and names.count("forward") > 1:
                raise Objection(node, "defines forward twice", "define it once")
        elif any(isinstance(part, ast.Name) and part.id == "forward" for part in ast.walk(node)):
            raise Objection(node, "replaces forward", "write the work into forward")


def _forward_is_plain(reading: Reading) -> None:
    for node in reading.entry.body:
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            for mark in node.decorator_list:
                if not reading.path(mark.func if isinstance(mark, ast.Call) else mark).startswith("torch."):
                    raise Objection(node, f"decorates forward with {ast.unparse(mark)[:60]}", "leave it out")


def _no_fallback(reading: Reading) -> None:
    for node in reading.nodes:
        if isinstance(node, ast.Try | ast.TryStar):
            raise Objection(node, "catches exceptions", "a fallback hides whether the kernel works: let it fail")


RULES: tuple[Callable[[Reading], None], ...] = (
    imports,
    _names,
    _attributes,
    names_of_modules,
    paths,
    _patches,
    _classes,
    _forward_is_plain,
    _no_fallback,
    kernels_are_tritons,
    launches,
    operations,
)
