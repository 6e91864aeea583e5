"""Static rules of a strict task: outside of kernels, host code allocates, views and launches, and computes nothing.

What a constructor computes is let be: it sees no inputs, and the judge puts the reference's parameters in place after.
"""

from __future__ import annotations

import ast

from evaluator import static_rules as rules
from evaluator.static_layers import layers
from evaluator.static_reading import Objection, Reading
from evaluator.static_tensors import Tensors
from evaluator.static_values import computing_methods, operator_functions

_COMPUTING = ("torch.nn.functional.", "torch.nn.utils.")
_NOT_IDENTITY = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def operations(reading: Reading) -> None:
    """No torch operator, method, function or layer computes."""
    if reading.task.op_policy != "strict":
        return
    for node in reading.host_nodes:
        _functions(reading, node)
    layers(reading)
    computing_methods(reading)
    tensors = Tensors(reading)
    operator_functions(reading, tensors)
    for function in tensors.functions:
        if function.name == "__init__":
            continue
        names = tensors.names(function)
        for node in tensors.nodes(function):
            if _computes(tensors, node, names):
                reason = f"{' '.join(ast.unparse(node).split())[:60]} computes in torch"
                raise Objection(node, reason, rules.IN_TRITON)


def _functions(reading: Reading, node: ast.AST) -> None:
    if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
        raise Objection(node, "multiplies matrices in torch", rules.IN_TRITON)
    if not isinstance(node, ast.Attribute | ast.Name):
        return
    path = reading.path(node)
    parts = path.split(".")
    member = parts[0] == "torch" and len(parts) == 2 and parts[1] not in rules.TORCH_ALLOCATION | {"_inductor"}
    method = path.startswith("torch.Tensor.") and parts[2] not in rules.VIEWS | rules.DESCRIPTIONS
    parent = reading.parents.get(id(node))
    if isinstance(parent, ast.Call) and parent.func is node and reading.in_constructor(node):
        return
    if member or method or path.startswith(_COMPUTING) or path in ("operator.matmul", "operator.imatmul"):
        raise Objection(node, f"{path} computes in torch", rules.IN_TRITON)


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
            return attr in rules.COMPUTING and tensors.is_tensor(value, names)
    return False
