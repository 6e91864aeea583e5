"""The static stage: reads a candidate's syntax tree and refuses what no honest kernel needs. Runs nothing.

This stage saves work and gives clear words; safety does not depend on it (the worker is confined) and neither does
correctness (the judge compares outputs). What passes here can still be refused by every later stage.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from evaluator import static_rules as rules
from evaluator.launches import find_kernels, find_launches, is_jit
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


class _Objection(Exception):  # noqa: N818  not an error: a verdict on its way out
    def __init__(self, node: ast.AST | None, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.line: int | None = getattr(node, "lineno", None)
        self.reason = reason
        self.fix = fix


def check(source: str, task: Task) -> StaticVerdict:
    """The static verdict on one source. Never raises for anything a candidate can contain."""
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > MAX_SOURCE_BYTES:
        reason = f"the source is {size >> 10} KiB long, more than {MAX_SOURCE_BYTES >> 10} KiB"
        return StaticVerdict(status=EvalStatus.REJECTED_STATIC, reason=reason, explain=reason)
    try:
        tree = ast.parse(source)
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
        for rule in RULES:
            rule(tree, entry, task)
    except _Objection as objection:
        return _objected(source, objection)
    return CLEAN


def _objected(source: str, objection: _Objection) -> StaticVerdict:
    line = objection.line
    where = f"line {line}: " if line else ""
    lines = source.splitlines()
    quoted = lines[line - 1].strip()[:200] if line and line <= len(lines) else ""
    explain = "\n".join(part for part in (f"{where}{objection.reason}", quoted, objection.fix) if part)
    return StaticVerdict(
        status=EvalStatus.REJECTED_STATIC, reason=f"{where}{objection.reason}", explain=explain, line=line
    )


def _imports(tree: ast.Module, entry: ast.ClassDef, task: Task) -> None:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            names = [base] if node.level == 0 and _importable(base) else [f"{'.' * node.level}{base}"]
            names += [f"{base}.{alias.name}" for alias in node.names if f"{base}.{alias.name}" in rules.FORBIDDEN_PATHS]
        for name in names:
            if not _importable(name) or name in rules.FORBIDDEN_PATHS:
                raise _Objection(node, f"imports {name}", "kernels need torch, triton and math")


def _importable(name: str) -> bool:
    return name in rules.IMPORTS or name.startswith(rules.IMPORT_PREFIXES)


def _names(tree: ast.Module, entry: ast.ClassDef, task: Task) -> None:
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            why = rules.FORBIDDEN_NAMES.get(node.id)
            if why:
                raise _Objection(node, f"{node.id} {why}", "leave it out")
            if node.id == "Model" and "Model" not in defined:
                raise _Objection(node, "uses the reference's class Model", "compute the result in Triton")
            if node.id == "getattr":
                raise _Objection(node, "getattr reaches attributes that cannot be read here", "name the attribute")


def _attributes(tree: ast.Module, entry: ast.ClassDef, task: Task) -> None:
    aliases = imported_names(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        name = node.attr
        if name.startswith("__") and name.endswith("__") and name not in rules.ALLOWED_DUNDERS:
            raise _Objection(node, f"reaches {name}", "leave it out")
        if name in rules.FORBIDDEN_ATTRIBUTES:
            raise _Objection(node, f"{name} {rules.FORBIDDEN_ATTRIBUTES[name]}", "leave it out")
        path = dotted(node, aliases)
        for prefix, why in rules.FORBIDDEN_PATHS.items():
            if path == prefix or path.startswith(prefix + "."):
                raise _Objection(node, f"{prefix} {why}", "leave it out")
        if path.startswith("torch.cuda.") and path.split(".")[2] not in rules.ALLOWED_CUDA:
            raise _Objection(node, f"{path} is the judge's", "launch kernels on the current stream and return")


def _patches(tree: ast.Module, entry: ast.ClassDef, task: Task) -> None:
    aliases = imported_names(tree)
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            for part in ast.walk(target):
                if isinstance(part, ast.Attribute | ast.Subscript) and _root(part) in aliases:
                    raise _Objection(node, f"changes {ast.unparse(part)}", "libraries must stay as they are")
                if (
                    isinstance(part, ast.Name)
                    and isinstance(part.ctx, ast.Store)
                    and part.id in ("torch", "triton", "tl")
                ):
                    raise _Objection(node, f"rebinds {part.id}", "libraries must stay as they are")


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _no_fallback(tree: ast.Module, entry: ast.ClassDef, task: Task) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            raise _Objection(node, "catches exceptions", "a fallback hides whether the kernel works: let it fail")


def _launches(tree: ast.Module, entry: ast.ClassDef, task: Task) -> None:
    kernels = find_kernels(tree)
    if not kernels:
        raise _Objection(entry, "defines no @triton.jit kernel", "write the computation as a Triton kernel")
    launched = _reachable_launches(tree, entry)
    if not launched:
        raise _Objection(
            entry, f"{ENTRY}.forward never launches a Triton kernel", "launch it as kernel[grid](…) from forward"
        )
    if not any(_stores(kernels[name].node, kernels_by_call(tree)) for name in launched):
        raise _Objection(
            kernels[launched[0]].node, "the launched kernel stores nothing", "store its result with tl.store"
        )


def kernels_by_call(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Every jit function by name: kernels and the device functions they call."""
    return {name: kernel.node for name, kernel in find_kernels(tree).items()}


def _stores(kernel: ast.FunctionDef, functions: dict[str, ast.FunctionDef]) -> bool:
    seen: set[str] = set()
    pending = [kernel]
    while pending:
        node = pending.pop()
        for call in ast.walk(node):
            if not isinstance(call, ast.Call):
                continue
            name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if name in ("store", "store_tensor_descriptor") or name.startswith("atomic_"):
                return True
            called = call.func.id if isinstance(call.func, ast.Name) else ""
            if called in functions and called not in seen:
                seen.add(called)
                pending.append(functions[called])
    return False


def _reachable_launches(tree: ast.Module, entry: ast.ClassDef) -> list[str]:
    """Kernels launched by code that `forward` can reach, following calls by name through the module."""
    bodies: dict[str, list[ast.AST]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and not is_jit(node):
            bodies.setdefault(node.name, []).append(node)
    launches = {id(launch.call): launch.kernel.name for launch in find_launches(tree)}
    pending: list[ast.AST] = [
        node for node in entry.body if isinstance(node, ast.FunctionDef) and node.name == "forward"
    ]
    seen: set[int] = set()
    found: list[str] = []
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        for part in _live(node):
            if id(part) in launches:
                found.append(launches[id(part)])
            for name in _mentioned(part):
                # `X.apply` reaches the forward of an autograd function.
                pending += bodies.get("forward" if name == "apply" else name, [])
    return found


def _mentioned(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name):
        return [node.id]
    return [node.attr] if isinstance(node, ast.Attribute) else []


def _live(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what is below it, without branches that a literal condition switches off."""
    yield node
    skipped: list[ast.stmt] = []
    if isinstance(node, ast.If | ast.While) and isinstance(node.test, ast.Constant):
        skipped = node.orelse if node.test.value else node.body
    for child in ast.iter_child_nodes(node):
        if child not in skipped:
            yield from _live(child)


def _operations(tree: ast.Module, entry: ast.ClassDef, task: Task) -> None:
    if task.op_policy != "strict":
        return
    aliases = imported_names(tree)
    layers = _held_layers(tree)
    for node in _host_nodes(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            raise _Objection(node, "multiplies matrices in torch", "this task wants all computation in Triton")
        if isinstance(node, ast.Attribute | ast.Name):
            path = dotted(node, aliases)
            parts = path.split(".")
            member = parts[0] == "torch" and len(parts) == 2 and parts[1] not in rules.TORCH_ALLOCATION
            if member or path.startswith("torch.nn.functional."):
                raise _Objection(node, f"{path} computes in torch", "this task wants all computation in Triton")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            _method_call(node, node.func, aliases, layers)


def _method_call(node: ast.Call, func: ast.Attribute, aliases: dict[str, str], layers: set[str]) -> None:
    if func.attr in layers and isinstance(func.value, ast.Name) and func.value.id == "self":
        raise _Objection(node, f"calls the layer self.{func.attr}", "use its parameters in a Triton kernel")
    if func.attr in rules.COMPUTE_METHODS and _root(func) not in aliases:
        raise _Objection(node, f".{func.attr}() computes in torch", "this task wants all computation in Triton")


def _held_layers(tree: ast.Module) -> set[str]:
    aliases = imported_names(tree)
    held: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            layer = dotted(node.value.func, aliases).split(".")[-1]
            if layer in rules.LAYERS:
                held |= {target.attr for target in node.targets if isinstance(target, ast.Attribute)}
    return held


def _host_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if is_jit(node):
            continue
        yield node
        pending.extend(ast.iter_child_nodes(node))


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Local name -> dotted path of everything the module imports."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted(node: ast.expr, aliases: dict[str, str]) -> str:
    """The full path an attribute chain stands for, its first name resolved through the imports; "" for others."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in aliases:
        return ""
    return ".".join([aliases[node.id], *reversed(parts)])


RULES: tuple[Callable[[ast.Module, ast.ClassDef, Task], None], ...] = (
    _imports,
    _names,
    _attributes,
    _patches,
    _no_fallback,
    _launches,
    _operations,
)
