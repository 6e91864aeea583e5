"""One seam into Triton's interpreter: who runs the grid, and what happens at each memory access.

Everything that knows the interpreter's internals is here (checked against Triton 3.6 and 3.9). The interpreter
funnels every access through `create_masked_load`, `create_masked_store`, `create_atomic_rmw` and
`create_atomic_cas` of one builder object, and every launch through `GridExecutor.__call__`; both are replaced inside
`observed`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, Protocol
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from evaluator.candidate_module import FILE_NAME
from evaluator.first_config import first_config_only

Addresses = NDArray[np.uint64]
Mask = NDArray[np.bool_]


class UnsupportedError(RuntimeError):
    """The kernel uses something that the interpreter lacks; that says nothing about whether it is right."""


class Observer(Protocol):
    """What is told of accesses and runs the grid."""

    def access(self, kind: str, addresses: Addresses, mask: Mask, itemsize: int) -> Mask:
        """Called before each access with the lanes' byte addresses; returns the lanes that may go on."""
        ...

    def launch(self, call: LaunchCall) -> None:
        """Run (or sample) one launch."""
        ...


class LaunchCall:
    """One launch as the interpreter sees it."""

    def __init__(self, executor: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        spec = inspect.getfullargspec(executor.fn)
        self.options = {name: value for name, value in kwargs.items() if name not in (*spec.args, *spec.kwonlyargs)}
        known = {name: value for name, value in kwargs.items() if name not in self.options}
        self.arguments: dict[str, Any] = inspect.getcallargs(executor.fn, *args, **known)
        self.kernel: str = executor.fn.__name__
        self.constexprs: list[str] = list(executor.constexprs)
        self._executor = executor
        self.grid = self._grid()

    def _grid(self) -> tuple[int, int, int]:
        grid = self._executor.grid
        # Like the compiled path, a callable grid sees plain argument values.
        size = grid(dict(self.arguments)) if callable(grid) else grid
        sizes = [int(part) for part in (size if isinstance(size, tuple | list) else (size,))]
        x, y, z = [*sizes, 1, 1][:3]
        return x, y, z

    @property
    def programs(self) -> int:
        """Number of programs in the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    def run(self, tensors: Mapping[str, Any], programs: Iterator[tuple[int, int, int]]) -> None:
        """Execute the given programs with `tensors` in place of the tensor arguments of those names."""
        from triton.runtime import interpreter

        arguments = {**self.arguments, **tensors}
        for hook in self._executor.pre_run_hooks:
            hook(**arguments)
        scope = interpreter._patch_lang(self._executor.fn)
        try:
            converted = {
                name: value if name in self.constexprs else _scalar_or_pointer(value)
                for name, value in arguments.items()
            }
            interpreter.interpreter_builder.set_grid_dim(*self.grid)
            with np.errstate(all="ignore"):
                for x, y, z in programs:
                    interpreter.interpreter_builder.set_grid_idx(x, y, z)
                    self._executor.fn(**converted)
        finally:
            if scope is not None:
                scope.restore()


def _scalar_or_pointer(value: Any) -> Any:
    """An argument as compiled kernels get it; the interpreter by itself leaves floats without a dtype."""
    import triton.language as tl
    from triton.runtime import interpreter

    if isinstance(value, float):
        return tl.tensor(interpreter.TensorHandle(np.array([value], dtype=np.float32), tl.float32), tl.float32)
    return interpreter._implicit_cvt(value)


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Give `observer` every launch and access inside; autotuned kernels run their first config."""
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    kind = type(builder)
    handle = interpreter.TensorHandle

    def masked_load(ptrs: Any, mask: Any, other: Any, *rest: Any) -> Any:
        allowed = observer.access("read", *_lanes(ptrs, mask), _itemsize(ptrs))
        return kind.create_masked_load(builder, ptrs, handle(allowed, mask.dtype), other, *rest)

    def masked_store(ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        allowed = observer.access("write", *_lanes(ptrs, mask), _itemsize(ptrs))
        return kind.create_masked_store(builder, ptrs, value, handle(allowed, mask.dtype), *rest)

    def atomic_rmw(operation: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        allowed = observer.access("atomic", *_lanes(ptrs, mask), _itemsize(ptrs))
        return kind.create_atomic_rmw(builder, operation, ptrs, value, handle(allowed, mask.dtype), *rest)

    def atomic_cas(ptrs: Any, *rest: Any) -> Any:
        everything = np.ones(ptrs.data.shape, dtype=bool)
        if not observer.access("atomic", ptrs.data, everything, _itemsize(ptrs)).all():
            raise IndexError("atomic_cas outside of every tensor")
        return kind.create_atomic_cas(builder, ptrs, *rest)

    def unsupported(name: str) -> Callable[..., Any]:
        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise UnsupportedError(f"Triton's interpreter cannot run {name}")

        return refuse

    replaced: dict[str, Callable[..., Any]] = {
        "create_masked_load": masked_load,
        "create_masked_store": masked_store,
        "create_atomic_rmw": atomic_rmw,
        "create_atomic_cas": atomic_cas,
        "create_inline_asm": unsupported("inline assembly"),
        "create_extern_elementwise": unsupported("external device functions (libdevice)"),
    }

    replaced.update(_bfloat16_arithmetic(builder))

    _refuse_libdevice()
    patched: set[int] = set()

    def call_device(function: Any, *args: Any, **kwargs: Any) -> Any:
        # The original patches triton.language anew at every call, which costs more than most kernels.
        if id(function.fn) not in patched:
            interpreter._patch_lang(function.fn)
            patched.add(id(function.fn))
        return function.rewrite()(*args, **kwargs)

    def call(executor: Any, *args: Any, **kwargs: Any) -> None:
        patched.clear()
        observer.launch(LaunchCall(executor, args, kwargs))

    with (
        patch.object(interpreter.GridExecutor, "__call__", call),
        patch.object(interpreter.InterpretedFunction, "__call__", call_device),
        replaced_on(builder, replaced),
        first_config_only(),
    ):
        yield


def _refuse_libdevice() -> None:
    """The generic libdevice functions have empty bodies that compiling replaces: run as they are they return None."""
    from triton.language.extra import libdevice

    for function in vars(libdevice).values():
        if inspect.isfunction(function):
            function.__code__ = _no_libdevice.__code__  # kernels may have imported the function itself


def _no_libdevice(*args: Any, **kwargs: Any) -> Any:
    from evaluator.interpreter_hooks import UnsupportedError  # runs with another module's globals

    raise UnsupportedError("Triton's interpreter cannot run external device functions (libdevice)")


@contextmanager
def replaced_on(target: object, methods: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Inside, `target` has these methods instead of its own."""
    with ExitStack() as stack:
        for name, method in methods.items():
            stack.enter_context(patch.object(target, name, method))
        yield


def _bfloat16_arithmetic(builder: Any) -> dict[str, Callable[..., Any]]:
    """The interpreter keeps bfloat16 as bit patterns and computes on those; compute in float32 and round instead."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    kind = type(builder)

    def wide(value: Any) -> Any:
        if value.dtype.scalar != tl.bfloat16:
            return value
        return TensorHandle((value.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def rounded(method: Callable[..., Any]) -> Callable[..., Any]:
        def compute(*operands: Any) -> Any:
            narrow = any(
                getattr(part, "dtype", None) is not None and part.dtype.scalar == tl.bfloat16
                for part in operands
                if isinstance(part, TensorHandle)
            )
            if not narrow:
                return method(builder, *operands)
            result = method(builder, *[wide(part) if isinstance(part, TensorHandle) else part for part in operands])
            if result.data.dtype == np.float32:
                return TensorHandle(_to_bfloat16(result.data), tl.bfloat16)
            return result

        return compute

    def dot(a: Any, b: Any, d: Any, *rest: Any) -> Any:
        return kind.create_dot(builder, wide(a), wide(b), d, *rest)

    names = ("binary_op", "unary_op", "create_fma", "create_clampf", "create_erf", "create_rsqrt")
    return {"create_dot": dot, **{name: rounded(getattr(kind, name)) for name in names}}


def _to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    bits = np.ascontiguousarray(values).view(np.uint32)
    # Round to nearest, ties to even; NaN stays NaN.
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def _lanes(ptrs: Any, mask: Any) -> tuple[Addresses, Mask]:
    shape = np.broadcast_shapes(ptrs.data.shape, mask.data.shape)
    return np.broadcast_to(ptrs.data, shape), np.broadcast_to(mask.data, shape).astype(bool, copy=False)


def _itemsize(ptrs: Any) -> int:
    return max(1, int(ptrs.get_element_ty().primitive_bitwidth) // 8)


def candidate_line() -> int | None:
    """Line of the candidate's file that is being executed; None outside of it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith(FILE_NAME):
            return frame.f_lineno
        frame = frame.f_back
    return None


def tensor_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors among a launch's arguments, by parameter name."""
    import torch

    return {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}


def extent(tensor: Any) -> tuple[int, int]:
    """[first, past-the-last) byte address of a tensor's elements; empty for an empty one."""
    if tensor.numel() == 0:
        return tensor.data_ptr(), tensor.data_ptr()
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def in_grid_order(grid: tuple[int, int, int], indices: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Program ids for linear indices; axis 0 runs fastest, as the hardware issues programs."""
    nx, ny, _ = grid
    for index in indices:
        yield index % nx, index // nx % ny, index // (nx * ny)
