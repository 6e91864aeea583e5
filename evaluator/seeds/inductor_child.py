"""Makes torch's Inductor write its Triton code for a task; a program of its own that needs no GPU (see `inductor`).

The reference is traced on fake tensors of a GPU that is only described, so nothing is compiled for it or run on it.
Sizes that differ between the task's shapes become symbols, all others are constants of the code.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

os.environ.pop("TRITON_INTERPRET", None)

import torch
from torch._dynamo import device_interface
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.graph import GraphLowering
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from evaluator.judge import constructor_args, reference_names
from evaluator.types import Task, Workload


class RefusedError(Exception):
    """Why there can be no such kernel."""


class _WrittenError(Exception):
    """The code is there; nothing more is wanted of Inductor."""


@contextmanager
def described(gpu: dict[str, int]) -> Iterator[None]:
    """Inductor believes that there is this GPU."""
    interface, properties = device_interface.CudaInterface, types.SimpleNamespace(**gpu, name="", gcnArchName="")

    def constant(value: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: value

    answers: dict[str, Any] = {
        "is_available": True,
        "is_triton_capable": True,
        "is_bf16_supported": True,
        "raise_if_triton_unavailable": None,
        "current_device": 0,
        "get_compute_capability": gpu["major"] * 10 + gpu["minor"],
        "get_device_properties": properties,
    }
    with ExitStack() as stack:
        for name, value in answers.items():
            stack.enter_context(mock.patch.object(interface, name, staticmethod(constant(value)), create=True))
            if hasattr(interface.Worker, name):
                stack.enter_context(mock.patch.object(interface.Worker, name, staticmethod(constant(value))))
        elsewhere: dict[str, Any] = {
            "torch.cuda.get_device_properties": properties,
            "torch.cuda.get_device_capability": (gpu["major"], gpu["minor"]),
            "torch.cuda.current_device": 0,
            "torch.cuda.device_count": 1,
            "torch.utils._triton.triton_hash_with_backend": "none",
        }
        for place, value in elsewhere.items():
            stack.enter_context(mock.patch(place, constant(value)))
        yield


class Traced:
    """The reference at all of the task's shapes: its models on the meta device and the inputs' shapes."""

    def __init__(self, task: Task) -> None:
        self.made = [self._made(task, shape) for shape in (*task.workloads[:1], *task.check_shapes)]
        self.model, self.inputs = self.made[0]
        self._sizes = ShapeEnv()
        self.fake = FakeTensorMode(shape_env=self._sizes, allow_non_fake_inputs=True)
        self._symbols: dict[tuple[int, ...], Any] = {}

    @staticmethod
    def _made(task: Task, shape: Workload) -> tuple[torch.nn.Module, list[Any]]:
        module = reference_names(task, shape)
        with torch.device("meta"):
            return module["Model"](*constructor_args(module)), list(module["get_inputs"]())

    def named(self, model: torch.nn.Module) -> dict[str, torch.Tensor]:
        """Parameters and buffers by name."""
        return {**dict(model.named_parameters()), **dict(model.named_buffers())}

    def like(self, alike: Sequence[torch.Tensor]) -> Any:
        """A fake tensor with one symbol for every size that differs between the shapes."""
        if any(one.dim() != alike[0].dim() for one in alike) or not alike[0].is_contiguous():
            raise RefusedError("an input has another number of dimensions at another shape, or is not contiguous")
        sizes = [self._size(values) for values in zip(*[one.shape for one in alike], strict=True)]
        with self.fake:
            return torch.empty(sizes, dtype=alike[0].dtype, device="cpu")

    def _size(self, values: tuple[int, ...]) -> Any:
        if len(set(values)) == 1:
            return values[0]
        if values not in self._symbols:
            from torch._dynamo.source import ConstantSource

            source = ConstantSource(f"size{len(self._symbols)}")
            symbol = self._sizes.create_symbol(values[0], source, dynamic_dim=DimDynamic.DYNAMIC)
            self._symbols[values] = self._sizes.create_symintnode(symbol, hint=values[0], source=source)
        return self._symbols[values]


def written(task: Task) -> dict[str, Any]:
    """Inductor's code, and what each of its arguments is. Raises `RefusedError`, and what Inductor raises."""
    traced = Traced(task)
    if not all(isinstance(value, torch.Tensor) for value in traced.inputs):
        raise RefusedError("an input is no tensor")
    weights = {
        name: traced.like([traced.named(model)[name] for model, _ in traced.made])
        for name in traced.named(traced.model)
    }
    inputs = [traced.like([given[index] for _, given in traced.made]) for index in range(len(traced.inputs))]
    shape: list[str] = []

    def call(*values: Any) -> Any:
        given = dict(zip(weights, values, strict=False))
        outputs = functional_call(traced.model, given, tuple(values[len(weights) :]))
        shape[:] = ["one" if isinstance(outputs, torch.Tensor) else type(outputs).__name__]
        return (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)

    with traced.fake, torch.no_grad():
        table = select_decomp_table()
        plain = functionalize(call, remove="mutations")
        graph = make_fx(plain, decomposition_table=table)(*weights.values(), *inputs)
    if shape[0] not in ("one", "tuple", "list"):
        raise RefusedError(f"forward returns a {shape[0]}")
    values = [*weights.values(), *inputs]
    _move(graph, values)
    code = _code(traced.fake, graph, values)
    names = list(inspect.signature(type(traced.model).forward).parameters)[1 : len(inputs) + 1]
    return {
        "version": torch.__version__.partition("+")[0],
        "code": code,
        "weights": list(weights),
        "inputs": names,
        "one": shape[0] == "one",
    }


def _move(graph: torch.fx.GraphModule, values: list[Any]) -> None:
    """Say that everything lies on the GPU: tracing there would take a torch that is built for one, and its driver."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.fx.node import map_aggregate
    from torch.utils._pytree import tree_leaves

    gpu = torch.device("cuda:0")

    def moved(value: Any) -> Any:
        return gpu if isinstance(value, torch.device) and value.type == "cpu" else value

    tensors = list(values)
    for node in graph.graph.nodes:
        node.args, node.kwargs = map_aggregate(node.args, moved), map_aggregate(node.kwargs, moved)
        tensors += tree_leaves(node.meta.get("val"))
    for tensor in tensors:
        if isinstance(tensor, FakeTensor):
            tensor.fake_device = gpu
    graph.recompile()


def _code(fake: Any, graph: Any, values: list[Any]) -> str:
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner

    found: list[str] = []

    def caught(lowering: Any) -> Any:
        code = lowering.codegen()
        code = code[0] if isinstance(code, tuple) else code
        found.append(str(getattr(code, "value", code)))
        raise _WrittenError

    changes = {"fx_graph_cache": False, "graph_partition": False, "triton.unique_kernel_names": True}
    try:
        with (
            mock.patch.object(GraphLowering, "compile_to_module", caught),
            torch._guards.tracing(torch._guards.TracingContext(fake)),
            torch.no_grad(),
            config.patch(changes),
        ):
            compile_fx_inner(graph, values)
    except Exception:
        if not found:
            raise
    return found[0]


def main() -> None:
    """Answer for the task on stdin: one JSON line."""
    given = json.load(sys.stdin)
    out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        with described(given["gpu"]):
            answer = written(Task.model_validate_json(given["task"]))
    except Exception as error:
        said = (str(error).splitlines() or [""])[0]
        answer = {"refused": said if isinstance(error, RefusedError) else f"{type(error).__name__}: {said}"}
    with open(out, "w", encoding="utf-8") as stream:
        stream.write(json.dumps(answer))


if __name__ == "__main__":
    main()
