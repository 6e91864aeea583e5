"""One problem, `x * 2 + shift`, in the format of every suite, with answers in that format. All of it is our own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

KERNEL = """import torch
import triton
import triton.language as tl


@triton.jit
def twice_kernel(x_ptr, shift_ptr, out_ptr, count, width, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(x_ptr + at, mask=inside)
    shift = tl.load(shift_ptr + at % width, mask=inside)
    tl.store(out_ptr + at, x * FACTOR + shift, mask=inside)


def fill(x, shift, out):
    count = x.numel()
    twice_kernel[(triton.cdiv(count, 256),)](x, shift, out, count, x.shape[1], BLOCK=256)
"""
TWICE = """

def twice(x, shift):
    out = torch.empty_like(x)
    fill(x, shift, out)
    return out
"""
MODEL = """

class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.randn(width))

    def forward(self, x):
        out = torch.empty_like(x)
        fill(x, self.shift, out)
        return out
"""
FACTORS = {"right": "2.0", "a thousandth off": "2.002", "wrong": "3.0"}


class Format(NamedTuple):
    """A problem written in one suite's format."""

    suite: str
    task: str
    """What comes after `suite:PATH/` where PATH is the whole suite."""
    write: Callable[[Path], None]
    answer: Callable[[str], str]
    """In the suite's own form, for a factor."""
    passes: Callable[[Path, torch.Tensor, torch.Tensor, torch.Tensor], bool]
    """The suite's own rule, restated: (its files, x, shift, output)."""


def _kernelbench(root: Path) -> None:
    (root / "level2").mkdir()
    (root / "level2" / "7_Twice.py").write_text("""import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, width):
        super(Model, self).__init__()
        self.shift = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return x * 2 + self.shift

rows = 64
width = 96

def get_inputs():
    return [torch.rand(rows, width)]

def get_init_inputs():
    return [width]
""")


def _robust_kbench(root: Path) -> None:
    folder = root / "twice"
    folder.mkdir()
    (folder / "func_forward.py").write_text("""import torch
import torch.nn as nn


def forward_fn(x, shift):
    return x * 2 + shift


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(width))

    def forward(self, x, fn=forward_fn):
        return fn(x, self.shift)


def get_inputs(rows=64, width=96):
    return [torch.rand(rows, width)]
""")
    config = {f"{kind}_{part}_configs": [{}] for kind in ("single", "multi") for part in ("init", "shared")}
    config |= {f"{kind}_shared_configs": [{"width": 96}] for kind in ("single", "multi")}
    config |= {"single_input_configs": [{"rows": 64}], "multi_input_configs": [{"rows": 64}, {"rows": 32}]}
    (folder / "config_forward.json").write_text(json.dumps(config))


TRITONBENCH = f"""import torch

def twice(x, shift, scale=2):
    return x * scale + shift

{"#" * 146}

import torch

def test_twice():
    torch.manual_seed(42)
    results = {{}}
    x = torch.rand(64, 96, device='cuda')
    shift = torch.rand(96, device="cuda").cuda()
    results["test_case_1"] = twice(x, shift)
    results["test_case_2"] = twice(x[:7].clone().to("cuda"), shift=shift)
    return results

test_results = test_twice()
print(test_results)
"""


def _tritonbench(root: Path) -> None:
    (root / "twice.py").write_text(TRITONBENCH)


def _gpu_mode(root: Path) -> None:
    folder = root / "first" / "twice_py"
    folder.mkdir(parents=True)
    (root / "first" / "utils.py").write_text("""import torch

def make_match(reference, rtol=1e-5, atol=1e-8):
    def check(data, output):
        close = torch.allclose(output, reference(data), rtol=rtol, atol=atol)
        return "" if close else "mismatch found!"
    return check
""")
    (folder / "task.py").write_text("import torch\ninput_t = tuple[torch.Tensor, torch.Tensor]\n")
    (folder / "reference.py").write_text("""import torch
from task import input_t
from utils import make_match


def ref_kernel(data: input_t) -> torch.Tensor:
    x, shift = data
    return x * 2 + shift


def generate_input(rows: int, width: int, seed: int) -> input_t:
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    x = torch.empty(rows, width, device="cuda")
    x.uniform_(0, 1, generator=gen)
    return x, torch.randn(width, device="cuda", generator=gen)


check_implementation = make_match(ref_kernel)
""")
    (folder / "task.yml").write_text("""files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "task.py", "source": "task.py"}
  - {"name": "utils.py", "source": "../utils.py"}
  - {"name": "reference.py", "source": "reference.py"}
  - {"name": "eval.py", "source": "../eval.py"}
lang: "py"
description: |
  Twice a matrix, and a shift for every row.
config:
  main: "eval.py"
tests:
  - {"rows": 7, "width": 33, "seed": 4242}
  - {"rows": 64, "width": 96, "seed": 5236}
benchmarks:
  - {"rows": 64, "width": 96, "seed": 54352}
  - {"rows": 128, "width": 96, "seed": 93246}
test_timeout: 180
ranked_timeout: 180
ranking_by: "geom"
""")


def _flashinfer(root: Path) -> None:
    for folder in ("definitions", "workloads"):
        (root / folder / "twice").mkdir(parents=True)
    definition = {
        "name": "twice_w96",
        "op_type": "twice",
        "axes": {"rows": {"type": "var"}, "width": {"type": "const", "value": 96}},
        "inputs": {
            "x": {"shape": ["rows", "width"], "dtype": "float32"},
            "shift": {"shape": ["width"], "dtype": "float32"},
        },
        "outputs": {"out": {"shape": ["rows", "width"], "dtype": "float32"}},
        "reference": "import torch\n\ndef run(x, shift):\n    return x * 2 + shift\n",
    }
    (root / "definitions" / "twice" / "twice_w96.json").write_text(json.dumps(definition))
    inputs = {"x": {"type": "random"}, "shift": {"type": "random"}}
    workload = {"uuid": "0b6e", "axes": {"rows": 64}, "inputs": inputs}
    line = {"definition": "twice_w96", "workload": workload, "solution": None, "evaluation": None}
    (root / "workloads" / "twice" / "twice_w96.jsonl").write_text(json.dumps(line) + "\n")


def _solution(factor: str) -> str:
    entry = "\n\ndef run(x, shift, out):\n    fill(x, shift, out)\n"
    spec = {"language": "triton", "target_hardware": ["cuda"], "entry_point": "main.py::run", "dependencies": []}
    source = {"path": "main.py", "content": _kernel(factor) + entry}
    solution = {"name": "ours", "definition": "twice_w96", "author": "us", "sources": [source]}
    return json.dumps({**solution, "spec": {**spec, "destination_passing_style": True}})


def _kernel(factor: str) -> str:
    return KERNEL.replace("FACTOR", factor)


def _close(output: torch.Tensor, x: torch.Tensor, shift: torch.Tensor, bound: float) -> bool:
    return torch.allclose(output, x * 2 + shift, atol=bound, rtol=bound)


def _printed_alike(root: Path, x: torch.Tensor, shift: torch.Tensor, output: torch.Tensor) -> bool:
    return str({"test_case_1": output}) == str({"test_case_1": x * 2 + shift})


def _checked(root: Path, x: torch.Tensor, shift: torch.Tensor, output: torch.Tensor) -> bool:
    from evaluator.loaders.placed import modules

    folder = root / "first" / "twice_py"
    places = {"utils": root / "first" / "utils.py", "task": folder / "task.py", "reference": folder / "reference.py"}
    named = modules({name: place.read_text() for name, place in places.items()}, "reference")
    return bool(named["check_implementation"]((x, shift), output) == "")


def _few_errors(root: Path, x: torch.Tensor, shift: torch.Tensor, output: torch.Tensor) -> bool:
    error = (output - (x * 2 + shift)).abs()
    return not bool(((error > 1e-2) & (error > 1e-2 * (x * 2 + shift).abs())).any())


FORMATS = {
    one.suite: one
    for one in (
        Format(
            "kernelbench",
            "level2/7",
            _kernelbench,
            lambda factor: _kernel(factor) + MODEL,
            lambda root, x, shift, output: _close(output, x, shift, 1e-4),
        ),
        Format(
            "robust_kbench",
            "twice",
            _robust_kbench,
            lambda factor: _kernel(factor) + MODEL,
            lambda root, x, shift, output: _close(output, x, shift, 1e-5),
        ),
        Format(
            "tritonbench",
            "twice",
            _tritonbench,
            lambda factor: _kernel(factor) + TWICE.replace("shift):", "shift, scale):"),
            _printed_alike,
        ),
        Format(
            "gpu_mode",
            "first/twice_py",
            _gpu_mode,
            lambda factor: _kernel(factor) + TWICE + "\n\ndef custom_kernel(data):\n    return twice(*data)\n",
            _checked,
        ),
        Format("flashinfer", "definitions/twice/twice_w96.json", _flashinfer, _solution, _few_errors),
    )
}
