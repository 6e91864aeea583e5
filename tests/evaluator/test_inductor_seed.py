"""Inductor's code becomes a file that a person could have written; torch 2.13 wrote the recordings, for an H200.

`python -m tests.evaluator.test_inductor_seed` records them anew; it takes a torch with Inductor, and no GPU.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from evaluator.backends.cpu import CpuEvaluator
from evaluator.errors import TaskError
from evaluator.seeds import inductor
from evaluator.task import load_task
from evaluator.testing import TASK, jobs
from evaluator.tunables import extract
from evaluator.types import KernelSource, Workload

GOLDEN = Path(__file__).parents[1] / "golden" / "inductor"
TWO_KERNELS = '''"""Softmax of a normalised projection, projected again."""

import torch
import torch.nn as nn

rows = 4096
width = 512


class Model(nn.Module):
    def __init__(self, width):
        super(Model, self).__init__()
        self.project = nn.Linear(width, 256)
        self.norm = nn.LayerNorm(256)
        self.out = nn.Linear(256, 128)

    def forward(self, x):
        x = torch.softmax(torch.relu(self.norm(self.project(x))), -1)
        return torch.relu(self.out(x))


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width]
'''
SHAPES = (Workload(name="one", params={"rows": 1}), Workload(name="prime", params={"rows": 7}))
TASKS = {
    "two_kernels": TASK.model_copy(
        update={
            "reference_source": TWO_KERNELS,
            "seed_source": None,
            "description": "Softmax of a normalised projection, projected again.",
            "op_policy": "mixed",
            "workloads": (Workload(name="default", params={"rows": 4096}),),
            "check_shapes": SHAPES,
        }
    ),
    "softmax": load_task("softmax"),
}


def recorded(name):
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


def passed(task, source):
    with CpuEvaluator(task.model_copy(update={"seed_source": None}), {"cache": False, "workers": 1}) as evaluator:
        ((_, found),) = evaluator.evaluate(jobs([KernelSource(text=source)]))
    return found


@pytest.mark.parametrize("name", TASKS)
def test_a_recording_becomes_the_golden_file(name):
    made = inductor.readable(TASKS[name], recorded(name))
    expected = GOLDEN / f"{name}.txt"
    if os.environ.get("KERNEVO_UPDATE_GOLDEN"):
        expected.write_text(made, encoding="utf-8")
    assert made == expected.read_text(encoding="utf-8")


def test_the_golden_file_of_several_kernels_is_a_correct_kernel_with_named_tunables():
    source = (GOLDEN / "two_kernels.txt").read_text(encoding="utf-8")
    found = passed(TASKS["two_kernels"], source)
    assert found.status.passed, found.reason
    assert len(found.profile.launches["default"]) == 2
    assert {name.rpartition(".")[2] for name in extract(source).defaults} >= {"XBLOCK", "num_warps"}
    assert "self.project.weight" in source
    assert "async_compile" not in source


def test_code_is_written_and_correct_without_a_gpu():
    source = inductor.seed(TASKS["softmax"])
    found = passed(TASKS["softmax"], source)
    assert found.status.passed, found.reason


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("x = torch.softmax(torch.relu(self.norm(self.project(x))), -1)", "return x @ x.t()", "libraries only"),
        ("return torch.relu(self.out(x))", "return {'x': x}", "forward returns a dict"),
        ("[torch.randn(rows, width)]", "[torch.randn(rows, width), 3]", "an input is no tensor"),
    ],
)
def test_where_there_is_no_such_kernel_the_reason_is_given(old, new, said):
    text = TWO_KERNELS.replace(old, new).replace("def forward(self, x)", "def forward(self, x, more=0)")
    with pytest.raises(TaskError, match=f"no first kernel from Inductor: .*{said}"):
        inductor.seed(TASKS["two_kernels"].model_copy(update={"reference_source": text}))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("'grid_type': 'Grid1D'", "'grid_type': 'SplitScanGrid'", "reduction on SplitScanGrid"),
        ("async_compile.triton(", "async_compile.multi_kernel(", "another kind: multi_kernel"),
        ("    args.clear()", "    while args: args.pop()", "a statement of another kind"),
        ("arg0_1, = args", "given, = args", "an unknown argument"),
    ],
)
def test_what_has_no_plain_form_is_named(old, new, said):
    answer = recorded("softmax")
    assert old in answer["code"]
    with pytest.raises(TaskError, match=said):
        inductor.readable(TASKS["softmax"], {**answer, "code": answer["code"].replace(old, new)})


def record() -> None:
    """Write the recordings, without comments, which hold paths."""
    for name, task in TASKS.items():
        answer = inductor.ask(task)
        lines = [line for line in answer["code"].splitlines() if not line.startswith("#")]
        text = json.dumps({**answer, "code": "\n".join(lines)}, indent=1) + "\n"
        (GOLDEN / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    record()
