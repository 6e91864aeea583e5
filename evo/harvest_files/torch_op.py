"""The kernel as a PyTorch operator, one opaque node for torch.compile and torch.export. Forward only.

`KernelOp` is a module with the constructor, the parameters and their names of the kernel's `ModelNew`. Each call takes
the kernel that was best at its shapes (`dispatch` in harvest.json), and the best of all at other shapes.
"""

from __future__ import annotations

import functools
import json
import warnings
from typing import Any

import torch
from torch.func import functional_call

from . import cases

_FACTS = cases.FACTS["operator"]
_BEST = cases.kernel(cases.KERNELS[0])
Shapes = tuple[Any, ...]


def shapes_of(inputs: Any) -> Shapes:
    """What a call is recognised by: the shape of every tensor, the value of everything else."""
    return tuple(tuple(value.shape) if isinstance(value, torch.Tensor) else value for value in inputs)


@functools.cache
def table() -> dict[Shapes, str]:
    """Shapes -> kernel file, for every timed workload that has a kernel of its own. Allocates no memory for them."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    found: dict[Shapes, str] = {}
    for entry in cases.FACTS["dispatch"]:
        try:
            with FakeTensorMode():
                found[shapes_of(cases.reference(entry["params"])["get_inputs"]())] = entry["file"]
        except Exception as error:
            warnings.warn(f"{entry['workload']}: shapes unknown, the best kernel is used: {error}", stacklevel=2)
    return found


def chosen(shapes: Shapes) -> str:
    """The kernel file for these shapes."""
    return table().get(shapes, cases.KERNELS[0])


@functools.cache
def _built(file: str, init: str, device: torch.device) -> Any:
    with torch.device(device):
        return cases.kernel(file).ModelNew(*json.loads(init)).eval()


def _names(model: Any) -> list[str]:
    return [name for name, _ in (*model.named_parameters(), *model.named_buffers())]


@torch.library.custom_op(_FACTS["name"], mutates_args=(), schema=_FACTS["schema"])
def op(state: list[torch.Tensor], init: str, *inputs: Any) -> Any:
    """The kernel on `inputs`, with the parameters and buffers `state` of a module made with `init` (a JSON list)."""
    device = next((value.device for value in (*inputs, *state) if isinstance(value, torch.Tensor)), torch.device("cpu"))
    best = _built(cases.KERNELS[0], init, device)
    model = _built(chosen(shapes_of(inputs)), init, device)
    if _names(model) != _names(best):
        model = best  # its state would not fit
    with torch.no_grad():
        return functional_call(model, dict(zip(_names(model), state, strict=True)), inputs)


@op.register_fake
def _shapes(state: list[torch.Tensor], init: str, *inputs: Any) -> Any:
    """What comes out, by the reference: shapes and dtypes alone."""
    device = next((value.device for value in (*inputs, *state) if isinstance(value, torch.Tensor)), torch.device("cpu"))
    with torch.device(device), torch.no_grad():
        result = cases.reference({})["Model"](*json.loads(init)).eval()(*inputs)
    made = [torch.empty(one.shape, dtype=one.dtype, device=one.device) for one in cases.outputs(result)]
    return tuple(made) if isinstance(result, tuple | list) else made[0]


class KernelOp(_BEST.ModelNew):  # type: ignore[misc, name-defined]  # known when the folder is
    """The kernel's module, calling the operator."""

    def __init__(self, *init: Any) -> None:
        super().__init__(*init)
        self._init = json.dumps(init)

    def arguments(self, inputs: Any) -> tuple[Any, ...]:
        """What the operator is called with."""
        state = [value for _, value in (*self.named_parameters(), *self.named_buffers())]
        return ([value.detach() for value in state], self._init, *inputs)

    def forward(self, *inputs: Any) -> Any:
        """The kernel's outputs. No gradient flows through them."""
        return op(*self.arguments(inputs))
