"""Whether two element-wise kernels with a buffer between them can be one."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from policy.rewrites.base import RewriteError
from policy.rewrites.cst_tools import (
    Statement,
    argument,
    assigned_names,
    body_of,
    code,
    dotted_name,
    expression,
    find,
    has_star_arguments,
    keyword,
    names_in,
    parameter_names,
    parameters,
    single_assignment,
    substitute,
)
from policy.rewrites.dataflow import Flow
from policy.rewrites.triton_tools import (
    Aliases,
    Launch,
    aliases,
    kernel_named,
    launch_argument,
    launches,
)

_ELEMENTWISE = frozenset(
    {
        "abs", "arange", "ceil", "clamp", "cos", "div_rn", "erf", "exp", "exp2", "fdiv", "floor", "fma", "full",
        "load", "log", "log2", "max_contiguous", "maximum", "minimum", "multiple_of", "program_id", "rsqrt",
        "sigmoid", "sin", "sqrt", "sqrt_rn", "store", "where", "zeros",
    }
)  # fmt: skip
_PURE_HOST_CALLS = frozenset({"cdiv", "empty", "empty_like", "next_power_of_2", "numel", "size", "stride"})


@dataclass(frozen=True)
class Part:
    """One of the two kernels with its only launch."""

    kernel: cst.FunctionDef
    launch: Launch
    flow: Flow
    known: Aliases
    host: Flow

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.name.value

    def host_value(self, parameter: str) -> str:
        """The text of what the launch passes, with host names resolved."""
        arg = launch_argument(self.launch, self.kernel, parameter)
        if arg is None:
            raise RewriteError(f"the launch of {self.name} leaves out {parameter}")
        return code(self.host.expanded(arg.value, self.launch.call))

    def host_name(self, parameter: str) -> str:
        """The text of what the launch passes, as it stands."""
        arg = launch_argument(self.launch, self.kernel, parameter)
        return "" if arg is None else code(arg.value)

    def meaning(self, node: cst.BaseExpression | None, at: cst.CSTNode) -> str | None:
        """An address or mask in terms of host values: equal texts are equal values in both kernels."""
        if node is None:
            return None
        full = self.flow.expanded(node, at)
        used = [name for name in parameter_names(self.kernel) if name in names_in(full)]
        return code(substitute(full, {name: expression(self.host_value(name)) for name in used}))

    def accesses(self, op: str, parameter: str | None = None) -> list[cst.Call]:
        """The kernel's loads or stores, all or those through one pointer parameter."""
        calls = [call for call in find(self.kernel.body, cst.Call) if self.known.language_name(call.func) == op]
        return [c for c in calls if parameter is None or self.pointer(c) == parameter]

    def pointer(self, call: cst.Call) -> str:
        """The pointer parameter an access goes through: the leftmost name of its address."""
        address = argument(call, "pointer", 0)
        if address is None:
            return ""
        names = find(self.flow.expanded(address.value, call), cst.Name)
        return names[0].value if names else ""


@dataclass(frozen=True)
class Pair:
    """Two kernels that can be one, and the buffer that goes."""

    first: Part
    second: Part
    buffer: str
    """Host name of the buffer between the kernels."""
    written: str
    """The first kernel's parameter for the buffer."""
    read: str
    """The second kernel's parameter for the buffer."""
    dtype: str
    """Text of the buffer's element type inside the fused kernel."""
    allocation: Statement


def fusable_pair(module: cst.Module, first: str, second: str) -> Pair:
    """The two kernels, after every check; raises RewriteError with the first reason against fusing them."""
    one, two = _part(module, first), _part(module, second)
    if one.host.function is not two.host.function:
        raise RewriteError("the two launches are in different functions")
    if code(one.host.expanded(one.launch.grid, one.launch.call)) != code(
        two.host.expanded(two.launch.grid, two.launch.call)
    ):
        raise RewriteError("the two kernels run on different grids")
    _check_between(one, two)
    buffer, written, read = _buffer(one, two)
    allocation = one.host.origin_line(buffer, one.launch.call)
    pair = single_assignment(allocation) if isinstance(allocation, cst.SimpleStatementLine) else None
    if pair is None or not isinstance(allocation, cst.SimpleStatementLine):
        raise RewriteError(f"{buffer} is not allocated by a plain assignment before the launches")
    _check_uses(one, buffer)
    _check_addresses(one, two, written, read)
    _check_globals(one, two)
    dtype = _element_type(pair[1], one)
    return Pair(one, two, buffer, written, read, dtype, allocation)


def _part(module: cst.Module, name: str) -> Part:
    kernel = kernel_named(module, name)
    known = aliases(module)
    mine = launches(module, name)
    uses = sum(node.value == name for node in find(module, cst.Name))
    if len(mine) != 1 or uses != 2:
        raise RewriteError(f"{name} is not launched exactly once")
    function = mine[0].function
    if function is None or has_star_arguments(mine[0].call) or len(kernel.decorators) != 1:
        raise RewriteError(f"the launch of {name} cannot be read")
    if any(param.default is not None for param in parameters(kernel)):
        raise RewriteError(f"{name} has parameters with defaults")
    _check_straight(kernel, known)
    return Part(kernel, mine[0], Flow(kernel), known, Flow(function))


def _check_straight(kernel: cst.FunctionDef, known: Aliases) -> None:
    """A body of plain single assignments and stores, every call element-wise."""
    seen: set[str] = set(parameter_names(kernel))
    for line in body_of(kernel):
        pair = single_assignment(line)
        if pair is not None and pair[0] not in seen:
            seen.add(pair[0])
        elif not is_expression(line):
            raise RewriteError(f"{kernel.name.value} is not straight-line code of single assignments")
    for call in find(kernel.body, cst.Call):
        op = known.language_name(call.func)
        method = isinstance(call.func, cst.Attribute) and call.func.attr.value == "to"
        builtin = isinstance(call.func, cst.Name) and call.func.value == "float"
        if not (method or builtin or (op is not None and op.removeprefix("math.") in _ELEMENTWISE)):
            raise RewriteError(f"{kernel.name.value} calls {code(call.func)}, which is not element-wise")


def is_expression(line: Statement) -> bool:
    """Whether a statement is an expression alone: a store, or a docstring."""
    return isinstance(line, cst.SimpleStatementLine) and all(isinstance(small, cst.Expr) for small in line.body)


def line_of(part: Part) -> cst.SimpleStatementLine:
    """The statement of the kernel's launch."""
    parents = part.host.parents
    expr = parents[id(part.launch.call)]
    line = parents[id(expr)]
    if not isinstance(expr, cst.Expr) or not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        raise RewriteError(f"the launch of {part.name} is not a statement of its own")
    return line


def _check_between(one: Part, two: Part) -> None:
    lines = [line_of(one), line_of(two)]
    block = one.host.parents[id(lines[0])]
    if two.host.parents[id(lines[1])] is not block or not isinstance(block, cst.IndentedBlock):
        raise RewriteError("the two launches are in different blocks")
    places = [index for index, line in enumerate(block.body) if line in lines]
    between = block.body[places[0] + 1 : places[1]]
    used = {name for arg in one.launch.call.args for name in names_in(arg)} | names_in(one.launch.grid)
    for line in between:
        if assigned_names(line) & used:
            raise RewriteError("an argument of the first launch changes before the second")
        calls = [(dotted_name(call.func) or "").split(".")[-1] for call in find(line, cst.Call)]
        if single_assignment(line) is None or not _PURE_HOST_CALLS.issuperset(calls):
            raise RewriteError("something happens between the two launches")


def _buffer(one: Part, two: Part) -> tuple[str, str, str]:
    """The host buffer that the first kernel only stores to and the second only loads from."""
    stored = {one.host_name(one.pointer(call)): one.pointer(call) for call in one.accesses("store")}
    loaded = {two.host_name(two.pointer(call)): two.pointer(call) for call in two.accesses("load")}
    shared = sorted(set(stored) & set(loaded))
    if len(shared) != 1 or not shared[0].isidentifier():
        raise RewriteError("the kernels do not share exactly one buffer")
    buffer = shared[0]
    others = {one.host_name(one.pointer(call)) for call in one.accesses("load")}
    results = {two.host_name(two.pointer(call)) for call in two.accesses("store")}
    if buffer in others | results or others & results or (set(stored) - {buffer}) & (set(loaded) | results):
        raise RewriteError("the kernels use each other's buffers in more than one way")
    return buffer, stored[buffer], loaded[buffer]


def _check_uses(one: Part, buffer: str) -> None:
    """The buffer is allocated, written, read, and at most copied in shape."""
    function = one.host.function
    allowed = 3 + sum(copies_shape(call, buffer) for call in find(function, cst.Call))
    if sum(node.value == buffer for node in find(function, cst.Name)) != allowed:
        raise RewriteError(f"{buffer} is used elsewhere")


def copies_shape(call: cst.Call, buffer: str) -> bool:
    """Whether a call is `torch.empty_like(buffer)`."""
    is_copy = (dotted_name(call.func) or "").endswith("empty_like")
    return is_copy and len(call.args) == 1 and code(call.args[0].value) == buffer


def _check_addresses(one: Part, two: Part, written: str, read: str) -> None:
    """One store and all loads of the buffer at the same address and mask; the same mask on all results."""
    stores = one.accesses("store", written)
    if len(stores) != 1 or one.accesses("load", written):
        raise RewriteError(f"{one.name} does not store its result exactly once")
    address, mask = _address(one, stores[0]), _mask(one, stores[0])
    for call in two.accesses("load", read):
        if (_address(two, call), _mask(two, call)) != (address, mask):
            raise RewriteError("the kernels address the buffer differently")
    if any(_mask(two, call) != mask for call in two.accesses("store")):
        raise RewriteError("the second kernel stores under another mask")
    # Any other use of the pointers than their element type would dangle.
    for part, parameter in ((one, written), (two, read)):
        uses = sum(n.value == parameter for n in find(part.kernel.body, cst.Name))
        typed = sum(code(n) == f"{parameter}.dtype.element_ty" for n in find(part.kernel.body, cst.Attribute))
        accessed = len(part.accesses("load", parameter)) + len(part.accesses("store", parameter))
        if uses != typed + accessed:
            raise RewriteError(f"{part.name} uses {parameter} in another way than one load or store")


def _check_globals(one: Part, two: Part) -> None:
    """A module global of the second kernel must not meet a local name of the first."""
    kernel = two.kernel
    free = names_in(kernel.body) - assigned_names(kernel.body) - set(parameter_names(kernel))
    if free & (assigned_names(one.kernel.body) | set(parameter_names(one.kernel))):
        raise RewriteError("a global of the second kernel has the name of a local of the first")


def _address(part: Part, call: cst.Call) -> str | None:
    arg = argument(call, "pointer", 0)
    return part.meaning(None if arg is None else arg.value, call)


def _mask(part: Part, call: cst.Call) -> str | None:
    position = 1 if part.known.language_name(call.func) == "load" else 2
    arg = argument(call, "mask", position)
    return part.meaning(None if arg is None else arg.value, call)


def _element_type(allocation: cst.BaseExpression, one: Part) -> str:
    """The buffer's element type in terms of the first kernel: that of the tensor it was shaped after."""
    if isinstance(allocation, cst.Call) and keyword(allocation, "dtype") is not None:
        text = code(keyword(allocation, "dtype").value)  # type: ignore[union-attr]
        if text.startswith("torch."):
            return f"{one.known.tl}.{text.removeprefix('torch.')}"
        model = text.removesuffix(".dtype")
    elif isinstance(allocation, cst.Call) and (dotted_name(allocation.func) or "").endswith("empty_like"):
        model = code(allocation.args[0].value)
    else:
        raise RewriteError("the type of the buffer between the kernels is not known")
    for name in parameter_names(one.kernel):
        if one.host_name(name) == model and one.accesses("load", name):
            return f"{name}.dtype.element_ty"
    raise RewriteError(f"no loaded argument of {one.name} has the buffer's type")
