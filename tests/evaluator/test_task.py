"""Task files are read strictly, and workloads reach the reference."""

from __future__ import annotations

import shutil

import pytest

from evaluator import task as tasks
from evaluator.errors import TaskError
from evaluator.task import SHIPPED, arithmetic, list_tasks, load_task, reference_module_source
from evaluator.types import Workload

EIGHT = ["attention", "cross_entropy", "layer_norm", "matmul", "rms_norm", "softmax", "sum_reduction", "swiglu"]


def test_eight_tasks_are_shipped():
    assert list_tasks() == EIGHT


@pytest.mark.parametrize("name", EIGHT)
def test_every_shipped_task_is_complete(name):
    task = load_task(name)
    assert task.name == name
    assert task.seed_source
    assert task.family
    assert len(task.workloads) >= 2
    assert all(workload.bytes_moved and workload.flops for workload in task.workloads)
    sizes = {value for shape in task.check_shapes for value in shape.params.values()}
    assert 1 in sizes, "a check shape with a dimension of one"
    assert any(_prime(size) and size > 16 for size in sizes), "a check shape with a prime dimension"
    assert any(size % 16 and not _prime(size) for size in sizes if size > 16), "a check shape that no block divides"


def _prime(number):
    return number > 1 and all(number % part for part in range(2, int(number**0.5) + 1))


def test_the_speed_of_light_bytes_of_softmax_are_one_read_and_one_write():
    (first, *_) = load_task("softmax").workloads
    assert first.bytes_moved == 2 * 8192 * 4096 * 4


def test_a_workloads_parameters_replace_the_literals_and_what_follows_from_them(tmp_path):
    task = load_task("softmax").model_copy(update={"reference_source": "M = 8\nN = 2 * M\nK = 3\n"})
    namespace: dict[str, object] = {}
    exec(reference_module_source(task, Workload(name="w", params={"M": 5})), namespace)
    assert (namespace["M"], namespace["N"], namespace["K"]) == (5, 10, 3)


def test_a_parameter_the_reference_lacks_names_the_nearest():
    with pytest.raises(TaskError, match="unknown NN") as caught:
        reference_module_source(load_task("softmax"), Workload(name="w", params={"NN": 5}))
    assert caught.value.hint == "did you mean N?"


def test_an_unknown_task_names_the_nearest():
    with pytest.raises(TaskError, match="unknown task 'sofmax'") as caught:
        load_task("sofmax")
    assert caught.value.hint == "did you mean softmax?"


def test_a_missing_folder_is_said_to_be_missing():
    with pytest.raises(TaskError, match="no such task folder"):
        load_task("./nowhere")


def test_a_module_is_told_how_to_become_a_task(tmp_path):
    (tmp_path / "mine.py").write_text("x = 1\n")
    with pytest.raises(TaskError) as caught:
        load_task(str(tmp_path / "mine.py"))
    assert "kernevo init" in caught.value.hint


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(SHIPPED / "softmax", tmp_path / "mine")
    return tmp_path / "mine"


def test_a_task_folder_is_read_like_a_shipped_one(folder):
    mine, shipped = load_task(str(folder)), load_task("softmax")
    assert mine.name == "mine"
    assert mine.workloads == shipped.workloads
    assert mine.origin == str(folder)


def test_a_task_lists_modules_that_its_kernels_may_import(folder):
    path = folder / "task.yaml"
    path.write_text(path.read_text() + "imports: [liger_kernel]\n")
    assert load_task(str(folder)).imports == ("liger_kernel",)
    assert load_task(str(folder)).fingerprint != load_task("softmax").fingerprint


def test_a_changed_reference_changes_the_fingerprint_and_a_moved_folder_does_not(folder, tmp_path):
    before = load_task(str(folder)).fingerprint
    (folder / "reference.py").write_text((folder / "reference.py").read_text() + "\n# changed\n")
    assert load_task(str(folder)).fingerprint != before


@pytest.mark.parametrize(
    ("edit", "where", "message"),
    [
        (lambda text: text.replace("dtype:", "dtyp:"), "3:1", "unknown key dtyp"),
        (lambda text: text + "family: other\n", "16:1", "family.*twice|twice.*family|family.*again"),
        (lambda text: text.replace("{atol: 1e-4", "{atol: -1"), "4:1", "tolerance.atol"),
        (lambda text: text.replace("params: {M: 1, N: 1}", "params: {Q: 1}"), "11:5", "parameter Q"),
        (lambda text: text.replace("2 * M * N * 4", "2 * M * X"), "7:5", "uses unknown X"),
        (lambda text: text.replace("2 * M * N * 4", "open('x')"), "7:5", "is no arithmetic"),
        (lambda text: text.replace("op_policy: strict", "op_policy: lax"), "5:1", "op_policy"),
        (lambda text: text + "imports: [liger_kernel.ops]\n", "16:1", "imports"),
        (lambda text: "just text\n", "1:1", "mapping"),
        (lambda text: "", "1:1", "mapping"),
        (lambda text: "a: [1,\n", "2:1", "not YAML"),
    ],
)
def test_a_mistake_in_task_yaml_is_pointed_at(folder, edit, where, message):
    path = folder / "task.yaml"
    path.write_text(edit(path.read_text()))
    with pytest.raises(TaskError, match=message) as caught:
        load_task(str(folder))
    assert f"task.yaml:{where}" in caught.value.message


def test_a_folder_without_a_reference_says_which_file_is_missing(folder):
    (folder / "reference.py").unlink()
    with pytest.raises(TaskError, match=r"reference\.py: No such file"):
        load_task(str(folder))


def test_a_reference_with_a_syntax_error_is_pointed_at(folder):
    (folder / "reference.py").write_text("def f(:\n")
    with pytest.raises(TaskError, match=r"reference\.py:1:7"):
        load_task(str(folder))


def test_without_a_tolerance_the_dtype_decides(folder):
    path = folder / "task.yaml"
    path.write_text(path.read_text().replace("tolerance: {atol: 1e-4, rtol: 1e-4}\n", ""))
    assert load_task(str(folder)).tolerance.atol == tasks.TOLERANCES["float32"]


def test_arithmetic_knows_parameters_and_nothing_else():
    assert arithmetic("2 * M * (N + 1) // 2", {"M": 3, "N": 5}, "here") == 18
    assert arithmetic("7 / 2", {}, "here") == 4
