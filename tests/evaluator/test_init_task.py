"""A user's module becomes a task, or is told by file and line why it cannot."""

from __future__ import annotations

import pytest

from evaluator.errors import TaskError, UsageError
from evaluator.init_task import init_task
from evaluator.task import load_task

MODULE = '''"""Scaled tanh of a projection."""
import torch

ROWS = 512
COLS = 96
SCALE = 2.0


class Model(torch.nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(96, cols))

    def forward(self, x):
        return torch.tanh(x @ self.weight.T * SCALE).half()


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return [COLS]
'''


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MODULE)
    return path


def test_a_module_becomes_a_task_with_its_sizes_dtype_and_small_shapes(module, tmp_path):
    made = init_task(module, tmp_path / "task")
    task = load_task(str(made.folder))
    assert task.description == "Scaled tanh of a projection."
    assert dict(task.workloads[0].params) == {"ROWS": 512, "COLS": 96}
    assert (task.dtype, task.tolerance.atol, task.op_policy) == ("float16", 1e-2, "mixed")
    sizes = [shape.params["ROWS"] for shape in task.check_shapes]
    assert sizes == [1, 7, 33, 128]
    assert all(shape.params["ROWS"] != shape.params["COLS"] for shape in task.check_shapes if shape.params["ROWS"] > 1)
    assert task.seed_source is None
    assert any("no seed.py" in note for note in made.notes)


def test_a_size_that_cannot_shrink_is_kept_and_said_so(module, tmp_path):
    module.write_text(MODULE.replace("def get_inputs():\n", "def get_inputs():\n    assert COLS == 96\n"))
    made = init_task(module, tmp_path / "task")
    assert all("COLS" not in shape.params for shape in load_task(str(made.folder)).check_shapes)
    assert any("COLS" in note for note in made.notes)


def test_a_given_seed_is_copied_as_it_is(module, tmp_path):
    seed = tmp_path / "kernel.py"
    seed.write_text("class ModelNew: ...\n")
    made = init_task(module, tmp_path / "task", seed)
    assert (made.folder / "seed.py").read_text() == "class ModelNew: ...\n"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("class Model(", "class Net("), r"mine\.py:9: the module defines no Model"),
        (lambda text: text.replace("def get_inputs", "def inputs"), r"mine\.py:1: the module defines no get_inputs"),
        (lambda text: text + "x = (\n", r"mine\.py:24:5"),
        (lambda text: text.replace("torch.tanh(", "torch.tan_h("), r"mine\.py:15: AttributeError"),
        (lambda text: text.replace(".half()", ".shape"), "forward returns a int"),
        (lambda text: text.replace("import torch\n", "import torch\nimport nowhere_to_be_found\n"), "ModuleNotFound"),
    ],
)
def test_a_module_that_cannot_be_a_task_is_told_where_and_why(module, tmp_path, change, message):
    module.write_text(change(MODULE))
    with pytest.raises(TaskError, match=message):
        init_task(module, tmp_path / "task")
    assert not (tmp_path / "task").exists()


def test_a_used_folder_is_left_alone(module, tmp_path):
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="already used"):
        init_task(module, tmp_path / "task")
    assert [path.name for path in (tmp_path / "task").iterdir()] == ["mine.txt"]


def test_a_missing_module_is_said_to_be_missing(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        init_task(tmp_path / "nowhere.py", tmp_path / "task")
