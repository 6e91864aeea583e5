"""Static rules of a strict task: outside of kernels, host code allocates, views and launches, and computes nothing.

What a constructor computes is let be: it sees no inputs, and the judge puts the reference's parameters in place after.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from evaluator import static_rules as rules
from evaluator.static_reading import Objection, Reading
from evaluator.static_tensors import Tensors

_IN_TRITON = "this task wants all computation in Triton"
_NOT_IDENTITY = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def operations(reading: Reading) -> None:
    """No torch operator, method, function or layer computes."""
    if reading.task.op_policy != "strict":
        return
    for node in reading.host_nodes:
        _functions(reading, node)
        if isinstance(node, ast.Call) and not _in_constructor(reading, node):
            _method_call(reading, node)
    _layers(reading)
    tensors = Tensors(reading)
    for function in tensors.functions:
        if function.name == "__init__":
            continue
        names = tensors.names(function)
        for node in tensors.nodes(function):
            if _computes(tensors, node, names):
                reason = f"{' '.join(ast.unparse(node).split())[:60]} computes in torch"
                raise Objection(node, reason, _IN_TRITON)


def _functions(reading: Reading, node: ast.AST) -> None:
    if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
        raise Objection(node, "multiplies matrices in torch", _IN_TRITON)
    if not isinstance(node, ast.Attribute | ast.Name):
        return
    path = reading.path(node)
    parts = path.split(".")
    member = parts[0] == "torch" and len(parts) == 2 and parts[1] not in rules.TORCH_ALLOCATION | {"_inductor"}
    method = path.startswith("torch.Tensor.") and parts[2] not in rules.VIEWS | rules.DESCRIPTIONS
    parent = reading.parents.get(id(node))
    if isinstance(parent, ast.Call) and parent.func is node and _in_constructor(reading, node):
        return
    if member or method or path.startswith("torch.nn.functional.") or path in ("operator.matmul", "operator.imatmul"):
        raise Objection(node, f"{path} computes in torch", _IN_TRITON)


def _in_constructor(reading: Reading, node: ast.AST) -> bool:
    """Whether a node runs as part of a constructor, and not of a function made there."""
    function = next(reading.functions_around(node), None)
    return isinstance(function, ast.FunctionDef) and function.name == "__init__"


def _method_call(reading: Reading, node: ast.Call) -> None:
    func = node.func
    if not isinstance(func, ast.Attribute) or func.attr not in rules.COMPUTE_METHODS or reading.path(func):
        return
    own = isinstance(func.value, ast.Name) and any(
        isinstance(other, ast.FunctionDef) and other.name == func.attr for other in reading.host_nodes
    )
    if not own:
        raise Objection(node, f".{func.attr}() computes in torch", _IN_TRITON)


def _layers(reading: Reading) -> None:
    """Layers may hold parameters, and do nothing else."""
    held = set(_held_layers(reading))
    for node in reading.host_nodes:
        if isinstance(node, ast.ClassDef) and (base := next((b for b in node.bases if _is_layer(reading, b)), None)):
            raise Objection(node, f"{node.name} is a {reading.path(base)}, which computes in torch", _IN_TRITON)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Call) and _is_layer(reading, node.func.func):
            raise Objection(node, f"calls a {reading.path(node.func.func)}", _IN_TRITON)
        if isinstance(node, ast.Attribute) and node.attr == "forward" and _is_layer(reading, node.value):
            raise Objection(node, f"calls {reading.path(node)}", _IN_TRITON)
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=attr, ctx=ast.Load()) if attr in held:
                if not _only_parameters(reading, node):
                    raise Objection(node, f"calls the layer self.{attr}", "use its parameters in a Triton kernel")


def _is_layer(reading: Reading, node: ast.expr) -> bool:
    path = reading.path(node)
    name = path.rpartition(".")[2]
    return path.startswith("torch.nn.") and name[:1].isupper() and name not in rules.HOLDERS


def _held_layers(reading: Reading) -> Iterator[str]:
    for node in reading.host_nodes:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.Call):
            continue
        if _is_layer(reading, node.value.func):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.attr for target in targets if isinstance(target, ast.Attribute))


def _only_parameters(reading: Reading, node: ast.expr) -> bool:
    """Whether a mention of a layer goes on to one of its attributes (`self.linear.weight`, `self.layers[0].bias`)."""
    parent = reading.parents.get(id(node))
    while isinstance(parent, ast.Subscript):
        parent = reading.parents.get(id(parent))
    return isinstance(parent, ast.Attribute) and parent.attr not in ("forward", "children", "modules")


def _computes(tensors: Tensors, node: ast.AST, names: set[str]) -> bool:
    match node:
        case ast.BinOp(left=left, right=right):
            return tensors.is_tensor(left, names) or tensors.is_tensor(right, names)
        case ast.AugAssign(target=target):
            return tensors.is_tensor(target, names)
        case ast.UnaryOp(op=ast.USub() | ast.Invert(), operand=operand):
            return tensors.is_tensor(operand, names)
        case ast.Compare(left=left, ops=[operator, *_], comparators=[right, *_]):
            compared = tensors.is_tensor(left, names) or tensors.is_tensor(right, names)
            return compared and isinstance(operator, _NOT_IDENTITY)
        case ast.Subscript(value=value, slice=index, ctx=ast.Load()):
            return tensors.is_tensor(index, names) and tensors.is_tensor(value, names)
        case ast.Call(func=ast.Name(id=function), args=args) if function in rules.COMPUTING_BUILTINS:
            return any(tensors.is_tensor(arg, names) for arg in args)
        case ast.Call(func=ast.Attribute(value=value, attr=attr)):
            return attr not in rules.VIEWS | rules.DESCRIPTIONS and tensors.is_tensor(value, names)
        case ast.Attribute(value=value, attr=attr):
            return attr in rules.COMPUTE_METHODS and tensors.is_tensor(value, names)
    return False
