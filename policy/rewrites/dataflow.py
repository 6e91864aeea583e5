"""Where a name's value comes from, and how many dimensions a value has, inside one kernel."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import libcst as cst

from policy.rewrites.cst_tools import (
    argument,
    assigned_names,
    integer,
    names_in,
    parameters,
    parent_map,
    single_assignment,
    statement_of,
    substitute,
    walk,
)
from policy.rewrites.triton_tools import Aliases

Origin = cst.BaseExpression | cst.For | cst.Param


class Flow:
    """Reaching definitions in one function.

    `origin` answers only when a single definition certainly reaches the use: a plain assignment earlier in the
    same or an enclosing block, the variable of an enclosing loop, or a parameter. Anything else is None.
    """

    def __init__(self, function: cst.FunctionDef) -> None:
        self.function = function
        self.parents = parent_map(function)
        self.params = {param.name.value: param for param in parameters(function)}

    def origin(self, name: str, at: cst.CSTNode) -> Origin | None:
        """What `name` holds where the node `at` reads it."""
        line = self.origin_line(name, at)
        if isinstance(line, (cst.For, cst.Param)) or line is None:
            return line
        pair = single_assignment(line)
        return None if pair is None else pair[1]

    def origin_line(self, name: str, at: cst.CSTNode) -> cst.SimpleStatementLine | cst.For | cst.Param | None:
        """The assignment line, loop or parameter that `origin` reads."""
        current: cst.CSTNode | None = statement_of(at, self.parents)
        while current is not None and current is not self.function:
            parent = self.parents[id(current)]
            if isinstance(parent, cst.IndentedBlock):
                for earlier in reversed(_before(parent.body, current)):
                    if name in assigned_names(earlier):
                        certain = isinstance(earlier, cst.SimpleStatementLine) and _assigns(earlier, name)
                        return earlier if certain and isinstance(earlier, cst.SimpleStatementLine) else None
            elif isinstance(parent, (cst.For, cst.While)) and name in assigned_names(parent):
                # A loop's own variable is certain; anything else may be carried from the last iteration.
                return parent if isinstance(parent, cst.For) and _is_loop_variable(parent, name) else None
            current = parent
        return self.params.get(name)

    def loops_around(self, node: cst.CSTNode) -> list[cst.For | cst.While]:
        """The loops around a node, innermost first."""
        found: list[cst.For | cst.While] = []
        current = self.parents.get(id(node))
        while current is not None:
            if isinstance(current, (cst.For, cst.While)):
                found.append(current)
            current = self.parents.get(id(current))
        return found

    def expanded(
        self,
        node: cst.BaseExpression,
        at: cst.CSTNode,
        *,
        names: Collection[str] | None = None,
        depth: int = 24,
    ) -> cst.BaseExpression:
        """`node` with assigned names (all, or those in `names`) replaced by their values where certain."""
        if depth == 0:
            return node
        values: dict[str, cst.BaseExpression] = {}
        for name in sorted(names_in(node)):
            if names is not None and name not in names:
                continue
            line = self.origin_line(name, at)
            pair = single_assignment(line) if isinstance(line, cst.SimpleStatementLine) else None
            if pair is None or line is None or name in names_in(pair[1]):
                continue
            value = self.expanded(pair[1], line, names=names, depth=depth - 1)
            # A name that was bound anew between the definition and the use would change its meaning.
            if all(self.origin_line(n, line) is self.origin_line(n, at) for n in names_in(value)):
                values[name] = value
        return substitute(node, values) if values else node


def _is_loop_variable(loop: cst.For, name: str) -> bool:
    target = loop.target
    return isinstance(target, cst.Name) and target.value == name and name not in assigned_names(loop.body)


def _before(body: Sequence[cst.CSTNode], node: cst.CSTNode) -> list[cst.CSTNode]:
    for index, item in enumerate(body):
        if item is node:
            return list(body[:index])
    return []


def _assigns(line: cst.CSTNode, name: str) -> bool:
    pair = single_assignment(line)
    return isinstance(line, cst.SimpleStatementLine) and pair is not None and pair[0] == name


_BOUNDS = frozenset({"arg1", "arg2", "step", "start", "stop", "end"})


def constant_range(loop: cst.For) -> tuple[cst.BaseExpression | None, cst.BaseExpression, cst.BaseExpression] | None:
    """`(start, end, step)` of a `range` or `tl.range` loop; a missing start is None, a missing step is 1.

    None when the loop is over something else, or spells its bounds as keywords.
    """
    if not isinstance(loop.iter, cst.Call):
        return None
    if any(arg.star or (arg.keyword is not None and arg.keyword.value in _BOUNDS) for arg in loop.iter.args):
        return None
    values = [arg.value for arg in loop.iter.args if arg.keyword is None and not arg.star]
    one: cst.BaseExpression = cst.Integer("1")
    if len(values) == 1:
        return None, values[0], one
    if len(values) == 2:
        return values[0], values[1], one
    return (values[0], values[1], values[2]) if len(values) == 3 else None


# --- ranks ------------------------------------------------------------------------------------------

_SCALAR_CALLS = {"program_id", "num_programs", "cdiv"}
_REDUCTIONS = {"sum", "max", "min", "argmax", "argmin", "xor_sum", "reduce"}
_SHAPED = {"zeros", "full"}


def ranks(kernel: cst.FunctionDef, known: Aliases) -> dict[str, int]:
    """Dimensions of every name whose rank is certain: 0 for scalars and pointers, 1 for `tl.arange` …

    A name with several definitions has a rank only when they agree.
    """
    found: dict[str, int] = {param.name.value: 0 for param in parameters(kernel)}
    unsure: set[str] = set()
    for node in walk(kernel.body):
        if isinstance(node, cst.For) and isinstance(node.target, cst.Name):
            _note(found, unsure, node.target.value, 0)
        elif isinstance(node, cst.Assign):
            value = rank_of(node.value, found, known)
            for target in node.targets:
                if isinstance(target.target, cst.Name):
                    _note(found, unsure, target.target.value, value)
                else:
                    unsure |= assigned_names(cst.Assign([target], cst.Integer("0")))
        elif isinstance(node, (cst.AugAssign, cst.AnnAssign)) and isinstance(node.target, cst.Name):
            value = None if node.value is None else rank_of(node.value, found, known)
            if isinstance(node, cst.AugAssign):
                before = found.get(node.target.value)
                value = None if value is None or before is None else max(value, before)
            _note(found, unsure, node.target.value, value)
    return {name: rank for name, rank in found.items() if name not in unsure}


def _note(found: dict[str, int], unsure: set[str], name: str, rank: int | None) -> None:
    if rank is None or found.setdefault(name, rank) != rank:
        unsure.add(name)


def rank_of(node: cst.CSTNode, known_ranks: Mapping[str, int], known: Aliases) -> int | None:
    """Dimensions of an expression's value, or None when it is not certain."""
    if isinstance(node, (cst.Integer, cst.Float, cst.SimpleString)):
        return 0
    if isinstance(node, cst.Name):
        return known_ranks.get(node.value)
    if isinstance(node, cst.UnaryOperation):
        return rank_of(node.expression, known_ranks, known)
    if isinstance(node, (cst.BinaryOperation, cst.BooleanOperation)):
        return _widest([node.left, node.right], known_ranks, known)
    if isinstance(node, cst.Comparison):
        return _widest([node.left, *(c.comparator for c in node.comparisons)], known_ranks, known)
    if isinstance(node, cst.Subscript):
        return _subscript_rank(node, known_ranks, known)
    if isinstance(node, cst.Call):
        return _call_rank(node, known_ranks, known)
    return None


def _widest(nodes: Sequence[cst.CSTNode], known_ranks: Mapping[str, int], known: Aliases) -> int | None:
    widths = [rank_of(node, known_ranks, known) for node in nodes]
    certain = [width for width in widths if width is not None]
    return max(certain) if certain and len(certain) == len(widths) else None


def _subscript_rank(node: cst.Subscript, known_ranks: Mapping[str, int], known: Aliases) -> int | None:
    kinds = [element.slice for element in node.slice]
    fresh = sum(isinstance(k, cst.Index) and isinstance(k.value, cst.Name) and k.value.value == "None" for k in kinds)
    kept = sum(isinstance(kind, cst.Slice) for kind in kinds)
    base = rank_of(node.value, known_ranks, known)
    return fresh + kept if base == kept and fresh + kept == len(kinds) else None


def _call_rank(node: cst.Call, known_ranks: Mapping[str, int], known: Aliases) -> int | None:
    name = known.language_name(node.func)
    if name is None:
        method = node.func
        if isinstance(method, cst.Attribute) and method.attr.value == "to":
            return rank_of(method.value, known_ranks, known)
        return 0 if isinstance(method, cst.Name) and method.value in ("float", "int") else None
    values = [arg.value for arg in node.args if arg.keyword is None]
    if name in _SCALAR_CALLS:
        return 0
    if name == "arange":
        return 1
    if name in _SHAPED:
        shape = argument(node, "shape", 0)
        inner = None if shape is None else shape.value
        return len(inner.elements) if isinstance(inner, (cst.Tuple, cst.List)) else None
    if name == "dot":
        return 2
    if name in _REDUCTIONS:
        return _reduced_rank(node, known_ranks, known)
    if name == "load":
        return rank_of(values[0], known_ranks, known) if values else None
    if name.removeprefix("math.") in _ELEMENTWISE and values:
        return _widest(values, known_ranks, known)
    return None


def _reduced_rank(node: cst.Call, known_ranks: Mapping[str, int], known: Aliases) -> int | None:
    base = rank_of(node.args[0].value, known_ranks, known) if node.args else None
    if base is None or any(arg.keyword is not None and arg.keyword.value == "keep_dims" for arg in node.args):
        return None
    axis = argument(node, "axis", 1)
    if axis is None:
        return 0
    return base - 1 if integer(axis.value) is not None and base > 0 else None


_ELEMENTWISE = {
    "abs", "ceil", "clamp", "cos", "div_rn", "erf", "exp", "exp2", "fdiv", "floor", "fma", "log", "log2",
    "max_contiguous", "maximum", "minimum", "multiple_of", "rsqrt", "sigmoid", "sin", "sqrt", "sqrt_rn",
    "where",
}  # fmt: skip
