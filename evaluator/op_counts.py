"""Counts arithmetic in the interpreter by the pipe it would keep busy on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from unittest.mock import patch

from evaluator.interpreter_hooks import replaced_on

_PIPES: dict[str, tuple[str, ...]] = {
    "fma": ("fadd", "fsub", "fmul", "fma", "fneg", "minimumf", "maximumf", "minnumf", "maxnumf", "clampf", "fabs"),
    "mufu": ("exp", "exp2", "log", "log2", "sqrt", "precise_sqrt", "rsqrt", "sin", "cos", "erf"),
    "divide": ("fdiv", "precise_divf", "approx_divf", "frem"),
    "convert": ("fp_ext", "fp_trunc", "fp_to_fp", "si_to_fp", "ui_to_fp", "fp_to_si", "fp_to_ui"),
    "compare": tuple(
        [
            f"fcmp{order}"
            for order in ("OLT", "OGT", "OLE", "OGE", "OEQ", "ONE", "ULT", "UGT", "ULE", "UGE", "UEQ", "UNE")
        ]
        + [f"icmp{order}" for order in ("SLE", "SLT", "SGE", "SGT", "ULE", "ULT", "UGE", "UGT", "EQ", "NE")]
    ),
    "alu": (
        *("add", "sub", "mul", "sdiv", "udiv", "srem", "urem", "shl", "lshr", "ashr", "and", "or", "xor", "select"),
        *("minsi", "minui", "maxsi", "maxui", "iabs", "addptr"),
    ),
}
"""Builder methods (without `create_`) by class. A float division is several instructions and counts apart."""


class Sink(Protocol):
    """Where counts go."""

    def add(self, name: str, elements: int) -> None:
        """`elements` results of class `name`."""
        ...

    def dot(self, dtype: str, m: int, n: int, k: int) -> None:
        """One tile product."""
        ...

    def reduction(self, elements: int) -> None:
        """One reduction or scan."""
        ...


@contextmanager
def counted(sink: Sink) -> Iterator[None]:
    """Tell `sink` of every operation inside. Enter after `interpreter_hooks.observed`."""
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder

    def counting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def compute(*args: Any) -> Any:
            result = method(*args)
            if result.data.size > 1:  # scalars run once per warp, on the uniform path
                sink.add(name, result.data.size)
            return result

        return compute

    replaced: dict[str, Callable[..., Any]] = {}
    for pipe, names in _PIPES.items():
        for name in names:
            method = getattr(builder, f"create_{name}", None)
            if method is not None:
                replaced[f"create_{name}"] = counting(pipe, method)
    inner_dot = builder.create_dot

    def dot(a: Any, b: Any, *rest: Any) -> Any:
        *_, m, k = a.data.shape
        batch = a.data.size // (m * k)
        sink.dot(str(a.dtype.scalar), m * batch, b.data.shape[-1], k)
        return inner_dot(a, b, *rest)

    replaced["create_dot"] = dot
    inner_apply = interpreter.ReduceScanOpInterface.apply

    def apply(operation: Any, inputs: Any) -> Any:
        first = inputs[0] if isinstance(inputs, tuple) else inputs
        if not isinstance(inputs, tuple):
            return inner_apply(operation, inputs)  # comes back here as a tuple
        sink.reduction(first.handle.data.size)
        return inner_apply(operation, inputs)

    with replaced_on(builder, replaced), patch.object(interpreter.ReduceScanOpInterface, "apply", apply):
        yield
