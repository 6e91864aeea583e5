"""Every kernel of this folder against the reference: `pytest DIR`. Without a GPU, Triton's interpreter runs them."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is imported, so before any kernel is
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
cases = importlib.import_module(f"{HERE.name}.cases")
SHAPES = cases.CHECKS + (cases.WORKLOADS if DEVICE == "cuda" else [])
HAS_OPERATOR = (HERE / "torch_op.py").is_file()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape["name"])
@pytest.mark.parametrize("file", cases.KERNELS)
def test_a_kernel_computes_what_the_reference_does(file: str, shape: dict[str, Any]) -> None:
    model, init, inputs = cases.case(shape["params"], DEVICE)
    with torch.no_grad():
        expected = model(*inputs)
        actual = cases.build(file, model, init, DEVICE)(*inputs)
    assert cases.difference(actual, expected) == ""


@pytest.mark.skipif(not HAS_OPERATOR, reason="no operator could be made for this kernel")
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape["name"])
def test_the_operator_computes_the_same_also_inside_a_compiled_graph(shape: dict[str, Any]) -> None:
    op = importlib.import_module(f"{HERE.name}.torch_op")
    model, init, inputs = cases.case(shape["params"], DEVICE)
    with torch.no_grad(), torch.device(DEVICE):
        module: Any = cases.filled(op.KernelOp(*init), model)
        expected = model(*inputs)
        assert cases.difference(module(*inputs), expected) == ""
        compiled: Any = torch.compile(module, backend="eager", fullgraph=True)
        assert cases.difference(compiled(*inputs), expected) == ""


@pytest.mark.skipif(not HAS_OPERATOR, reason="no operator could be made for this kernel")
def test_the_operator_keeps_to_what_pytorch_asks_of_operators() -> None:
    op = importlib.import_module(f"{HERE.name}.torch_op")
    model, init, inputs = cases.case(SHAPES[0]["params"], DEVICE)
    with torch.device(DEVICE):
        module: Any = cases.filled(op.KernelOp(*init), model)
    torch.library.opcheck(op.op, module.arguments(inputs), test_utils=("test_schema", "test_faketensor"))


@pytest.mark.skipif(not HAS_OPERATOR, reason="no operator could be made for this kernel")
def test_every_timed_shape_has_its_own_kernel() -> None:
    op = importlib.import_module(f"{HERE.name}.torch_op")
    assert set(op.table().values()) <= set(cases.KERNELS)
    assert op.chosen((("no", "such", "shape"),)) == cases.KERNELS[0]
