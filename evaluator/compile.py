"""Offline compilation: what the compiler makes of a candidate's launches, without a GPU.

`compile_workload` runs inside the untrusted worker. It calls the candidate with tensors on the meta device, takes
every launch of a jit function before it reaches a driver, and compiles it with Triton's own pipeline as far as PTX;
nothing is started and no memory of the benchmark's size is touched. `evaluator.assemble` turns the PTX into registers
and SASS on the trusted side.

Pointers count as 16-byte aligned, as `torch.empty` on CUDA makes them, unless a view's storage offset says otherwise;
integers are specialised by Triton's own rules.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from pydantic import Field

from evaluator import hardware
from evaluator.candidate_module import build_model, forward, load_candidate
from evaluator.first_config import first_config_only
from evaluator.types import Frozen, Scalar

if TYPE_CHECKING:
    import torch

MAX_LAUNCHES = 256
"""A forward that launches more than this is refused: its launch overhead alone would drown any kernel."""


class CompiledLaunch(Frozen):
    """One launch of a workload."""

    kernel: str
    grid: tuple[int, int, int]
    signature: Mapping[str, str]
    constants: Mapping[str, Scalar | None]
    numbers: Mapping[str, Scalar] = Field(default_factory=dict)
    """Arguments that are no tensors and no constants: the code does not hold them, the launch does."""
    num_warps: int
    num_stages: int
    num_ctas: int
    maxnreg: int | None = None
    shared_bytes: int
    ptx: str
    ptx_sha: str
    """SHA-256 of the PTX without comments, debug lines and the candidate's own names."""
    ttgir_sha: str


_COMPILED: dict[str, dict[str, Any]] = {}
# One worker process judges one candidate, whose workloads mostly share their kernels' specialisations.


class LaunchError(RuntimeError):
    """The host code launched something that no GPU would run."""


def warm_up(arch: int) -> None:
    """Ask ptxas for its version once, where processes may still be started; Triton's PTX stage wants to know."""
    from triton.backends.nvidia import compiler

    _ = compiler.get_ptxas(arch).version


def compile_workload(
    source: str,
    init_args: Sequence[Any],
    inputs: Sequence[Any],
    state: Mapping[str, torch.Tensor],
    target: str,
) -> list[CompiledLaunch]:
    """Every launch of one forward call, in launch order, compiled for the named `target` (see evaluator.hardware).

    Raises Triton's CompilationError, or whatever the candidate's host code raises.
    """
    import torch

    module = load_candidate(source)
    capture = _Capture(hardware.get(target).arch)
    with capture.active():
        model = build_model(module, init_args, state, lambda tensor: tensor.to("meta"))
        forward(model, [value.to("meta") if isinstance(value, torch.Tensor) else value for value in inputs])
    return capture.launches


class _Capture:
    """Stands in for JITFunction.run: compiles instead of launching."""

    def __init__(self, arch: int) -> None:
        from triton.backends.compiler import GPUTarget
        from triton.compiler.compiler import make_backend

        self._target = GPUTarget("cuda", arch, 32)
        self._backend = make_backend(self._target)
        self.launches: list[CompiledLaunch] = []

    @contextmanager
    def active(self) -> Iterator[None]:
        """While entered, launches of jit functions (and of autotuned ones, first config) are captured."""
        from triton.runtime.jit import JITFunction

        capture = self

        def run(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
            capture.launch(function, grid, args, kwargs)

        with patch.object(JITFunction, "run", run), first_config_only():
            yield

    def launch(self, function: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compile one launch and note it."""
        from triton.runtime.jit import create_function_from_signature

        if len(self.launches) == MAX_LAUNCHES:
            raise LaunchError(f"the forward launches more than {MAX_LAUNCHES} kernels")
        kwargs = {"debug": False, **kwargs}
        binder = create_function_from_signature(function.signature, function.params, self._backend)
        bound, specialization, options = binder(*args, **kwargs)
        options, signature, constexprs, attrs = function._pack_args(
            self._backend, kwargs, bound, specialization, options
        )
        size = _grid(grid, bound)
        if 0 in size:
            return  # an empty launch does nothing on a GPU as well
        made = self._compile(function, signature, constexprs, attrs, options)
        constants = {name: _scalar(value) for name, value in bound.items() if signature.get(name) == "constexpr"}
        self.launches.append(
            CompiledLaunch(
                kernel=function.__name__,
                grid=size,
                signature={name: str(kind) for name, kind in signature.items()},
                constants=constants,
                numbers={name: value for name, value in bound.items() if _is_number(value) and name not in constants},
                num_warps=options.num_warps,
                num_stages=options.num_stages,
                num_ctas=getattr(options, "num_ctas", 1),
                maxnreg=getattr(options, "maxnreg", None),
                **made,
            )
        )

    def _compile(self, function: Any, signature: Any, constexprs: Any, attrs: Any, options: Any) -> dict[str, Any]:
        from triton._C.libtriton import ir
        from triton.compiler.compiler import ASTSource

        source = ASTSource(function, signature, constexprs, attrs)
        key = hashlib.sha256(repr((source.hash(), sorted(map(repr, attrs.items())), options)).encode()).hexdigest()
        if key in _COMPILED:
            return _COMPILED[key]
        options = self._backend.parse_options({**options.__dict__, **source.parse_options()})
        context = ir.context()
        ir.load_dialects(context)
        self._backend.load_dialects(context)
        stages: dict[str, Callable[[Any, dict[str, Any]], Any]] = {}
        self._backend.add_stages(stages, options, source.language)
        codegen = self._backend.get_codegen_implementation(options)
        module = source.make_ir(self._target, options, codegen, self._backend.get_module_map(), context)
        metadata: dict[str, Any] = {"target": self._target, **options.__dict__}
        texts: dict[str, str] = {}
        for name in ("ttir", "ttgir", "llir", "ptx"):
            module = stages[name](module, metadata)
            texts[name] = str(module)
        made = {
            "shared_bytes": int(metadata.get("shared", 0)),
            "ptx": texts["ptx"],
            "ptx_sha": _sha(normalised_ptx(texts["ptx"], function.__name__)),
            "ttgir_sha": _sha(re.sub(r"loc\(.*?\)|#loc.*", "", texts["ttgir"])),
        }
        _COMPILED[key] = made
        return made


def normalised_ptx(ptx: str, kernel: str) -> str:
    """PTX without comments, line information and the kernel's own name: equal for equal code."""
    head = ptx.split("\t.section\t.debug", maxsplit=1)[0]
    lines = (line.split("//")[0].rstrip() for line in head.splitlines())
    kept = (line for line in lines if line.strip() and not re.match(r"\s*(\.loc|\.file)\b|\$L__tmp\d+:", line))
    return "\n".join(kept).replace(kernel, "KERNEL")


def _grid(grid: Any, bound: Mapping[str, Any]) -> tuple[int, int, int]:
    size = grid(bound) if callable(grid) else grid
    sizes = [int(part) for part in (size if isinstance(size, tuple | list) else (size,))]
    if not 1 <= len(sizes) <= 3:
        raise LaunchError(f"a grid has one to three dimensions, not {len(sizes)}")
    x, y, z = [*sizes, 1, 1][:3]
    if min(x, y, z) < 0 or x > 2**31 - 1 or y > 65535 or z > 65535:
        raise LaunchError(f"grid ({x}, {y}, {z}) exceeds CUDA's limits (2147483647, 65535, 65535)")
    return x, y, z


def _scalar(value: Any) -> Scalar | None:
    held = getattr(value, "value", value)
    return held if isinstance(held, bool | int | float | str) or held is None else str(held)


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float)


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
