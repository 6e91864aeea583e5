"""A harvest is a folder that works without Kernevo: its test, its operator, its table, its task."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import torch

from evaluator.errors import UsageError
from evaluator.task import list_tasks, load_task, read_folder
from evaluator.types import EvalStatus
from evo.harvest import harvest
from evo.harvest_package import licence_of, operator_of, specialists, yaml_of
from evo.verify import verify
from tests.evo.cli_call import call
from tests.evo.made import record
from tests.evo.run_maker import RunMaker, failed, passed

SOFTMAX = load_task("softmax")
WORKLOADS = [workload.name for workload in SOFTMAX.workloads]


def judged(source, *milliseconds):
    """A correct softmax with a latency for each workload; the baseline takes 1 ms."""
    evaluation = passed(source)
    timing = evaluation.timings["w"]
    timings = zip(WORKLOADS, milliseconds, strict=True)
    return evaluation.model_copy(
        update={"timings": {name: timing.model_copy(update={"median_ms": took}) for name, took in timings}}
    )


def made(path: Path, task: str, out: Path) -> Path:
    """A harvest of a run whose best is the task's own seed."""
    maker = RunMaker(path, task=task)
    source = load_task(task).seed_source
    maker.add(source, passed(source, 2.0))
    harvest(maker.load(), 1, out, package=True)
    return out


@pytest.fixture
def softmax(tmp_path):
    """A run with a best kernel and one that is faster at one shape."""
    maker = RunMaker(tmp_path / "run")
    best = SOFTMAX.seed_source
    wide = best.replace("BLOCK_SIZE = 256", "BLOCK_SIZE = 1024")
    first = maker.add(best, judged(best, 0.5, 0.5, 0.5))
    maker.add(wide, judged(wide, 0.9, 0.9, 0.3), parent=first, config={"BLOCK_SIZE": 1024}, rewrites=())
    maker.add("x", failed("x", EvalStatus.SYNTAX_ERROR, "static"), parent=first, rewrites=())
    out = tmp_path / "out" / "softmax_kernels"
    harvest(maker.load(), 1, out, package=True)
    return out


def python(*words, cwd, **environment):
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TRITON_INTERPRET")}
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, env={**clean, **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_the_folder_installs_in_a_fresh_environment_and_passes_its_own_test_without_kernevo(softmax, tmp_path):
    venv.create(tmp_path / "fresh", with_pip=True)
    [site] = (tmp_path / "fresh" / "lib").glob("python*/site-packages")
    # torch, triton and pytest come from here: downloading them again would prove nothing more.
    (site / "shared.pth").write_text(str(Path(torch.__file__).parents[1]) + "\n")
    for name in ("evo", "policy", "evaluator"):
        (site / f"{name}.py").write_text("raise ImportError('no Kernevo here')\n")
    fresh = str(tmp_path / "fresh" / "bin" / "python")
    environment = {**os.environ, "PYTHONPATH": "", "TRITON_DEFAULT_FP_FUSION": "1"}
    environment.pop("TRITON_INTERPRET", None)

    def run(*words):
        return subprocess.run(
            [fresh, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    pip = ("-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation", str(softmax))
    installed = run(*pip)
    assert installed.returncode == 0, installed.stderr
    assert run("-c", "import evo").returncode != 0
    place = run("-c", "import softmax_kernels; print(softmax_kernels.__file__)").stdout
    assert str(site) in place
    tested = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "softmax_kernels")
    assert tested.returncode == 0, tested.stdout
    assert "skipped" not in tested.stdout


@pytest.mark.slow
@pytest.mark.parametrize("task", ["layer_norm", "cross_entropy"])
def test_a_copied_folder_tests_kernels_with_weights_and_with_whole_numbers(task, tmp_path):
    out = made(tmp_path / "run", task, tmp_path / "my-kernels")
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", str(out), cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.slow
def test_the_test_of_a_folder_fails_for_a_kernel_that_is_wrong(softmax):
    kernel = next(softmax.glob("softmax_1_*.py"))
    kernel.write_text(kernel.read_text().replace("/ row_sum", "/ (row_sum + 1)"))
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", str(softmax), cwd=softmax)
    assert done.returncode == 1
    assert "values differ, by up to" in done.stdout


def test_the_benchmark_says_that_it_needs_a_gpu(softmax):
    done = python("benchmark.py", cwd=softmax, CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stderr) == (4, "error: no CUDA GPU here, so there is nothing to measure\n")


def test_the_table_names_the_fastest_kernel_of_each_shape_and_its_config(softmax):
    facts = json.loads((softmax / "harvest.json").read_text())
    files = [row["file"] for row in facts["dispatch"]]
    assert files == [facts["elites"][0]["file"]] * 2 + [facts["specialists"][0]["file"]]
    assert facts["dispatch"][2]["config"] == {"BLOCK_SIZE": 1024}
    assert (facts["dispatch"][2]["median_ms"], facts["dispatch"][2]["best_overall_ms"]) == (0.3, 0.5)
    assert all((softmax / file).is_file() for file in files)


def test_a_call_takes_the_kernel_of_its_shape_and_needs_no_memory_to_find_out(softmax):
    code = (
        "import torch; from softmax_kernels import torch_op as o; "
        "print(o.chosen(((1024, 16384),)), o.chosen(((8192, 4096),)), o.chosen(((3, 5),)))"
    )
    done = python("-c", code, cwd=softmax.parent, TRITON_INTERPRET="1")
    special, *best = done.stdout.split()
    assert special.startswith("softmax_2_"), done.stderr
    assert best == [best[0]] * 2


def test_a_kernel_that_is_hardly_faster_at_a_shape_is_no_specialist():
    best = record(1, 2.0)
    timing = best.evaluation.timings["w"]
    for took, found in ((0.99, {}), (0.5, {"w": "c000002"})):
        timings = {"w": timing.model_copy(update={"median_ms": took})}
        other = record(2, 1.9)
        other = other.model_copy(update={"evaluation": other.evaluation.model_copy(update={"timings": timings})})
        assert {name: one.id for name, one in specialists([best, other], best).items()} == found


@pytest.mark.parametrize("name", list_tasks())
def test_a_task_written_beside_a_harvest_judges_as_the_original(name, tmp_path):
    task = load_task(name)
    (tmp_path / "task.yaml").write_text(yaml_of(task))
    (tmp_path / "reference.py").write_text(task.reference_source)
    (tmp_path / "seed.py").write_text(task.seed_source)
    again = read_folder(tmp_path)
    assert (again.fingerprint, again.seed_source) == (task.fingerprint, task.seed_source)


@pytest.mark.parametrize(
    ("forward", "schema"),
    [
        ("self, x: torch.Tensor, eps: float) -> torch.Tensor", "Tensor x, float eps) -> Tensor"),
        ("self, x, y)", "Tensor x, Tensor y) -> Tensor"),
        ("self, x) -> tuple[torch.Tensor, torch.Tensor]", "Tensor x) -> (Tensor, Tensor)"),
        ("self, *xs)", None),
        ("self, x: list[torch.Tensor])", None),
        ("self, x) -> dict[str, torch.Tensor]", None),
    ],
)
def test_an_operator_is_made_where_the_signature_says_enough(forward, schema):
    reference = f"import torch\nclass Model(torch.nn.Module):\n    def forward({forward}:\n        return x\n"
    task = SOFTMAX.model_copy(update={"reference_source": reference})
    found = operator_of(task, "class ModelNew(torch.nn.Module): ...", "my-task")
    assert (found and found["schema"]) == (schema and f"(Tensor[] state, str init, {schema}")
    assert found is None or found["name"] == "kernevo::my_task"
    assert operator_of(task, "class ModelNew: ...", "t") is None


def test_the_licence_is_what_the_seed_says_and_else_what_is_known(tmp_path):
    run = RunMaker(tmp_path / "a").load()
    assert licence_of(run, "# SPDX-License-Identifier: MIT\nx = 1\n") == "MIT"
    assert licence_of(run, "x = 1\n").startswith("Apache-2.0")
    foreign = RunMaker(tmp_path / "b", task="kernelbench:kb/level1/23").load()
    assert licence_of(foreign, "x = 1\n").startswith("not stated")


def test_the_header_names_licence_hardware_and_interval(softmax):
    text = next(softmax.glob("softmax_1_*.py")).read_text()
    assert "# licence    Apache-2.0 (seed shipped with Kernevo)" in text
    assert "cores; no GPU" in text


def test_a_package_whose_task_is_gone_says_so_and_writes_nothing(tmp_path):
    maker = RunMaker(tmp_path / "run", task="tasks/gone")
    maker.add("x = 1\n", passed("x = 1\n"))
    outcome = call("harvest", maker.dir.path, "--out", tmp_path / "out")
    assert outcome.code == 2
    assert "tasks/gone" in outcome.err
    assert not (tmp_path / "out").exists()


def answers(**changes):
    """A judge that knows no mistakes but these."""
    asked = []

    def judge(task, source, evaluator):
        asked.append((task, evaluator))
        return passed(source, 2.0).model_copy(update=changes)

    return judge, asked


def test_verify_judges_every_kernel_on_the_task_beside_it(softmax):
    judge, asked = answers()
    found = verify(softmax, None, judge)
    assert asked == [(str(softmax / "task"), "cpu")] * 2
    assert [(one.passed, one.changed) for one in found] == [(True, False)] * 2
    assert found[0].ratio == pytest.approx(1.0)
    kernel = next(softmax.glob("softmax_1_*.py"))
    kernel.write_text(kernel.read_text() + "# mine\n")
    again = verify(softmax, "gpu", judge)
    assert asked[-1] == (str(softmax / "task"), "gpu")
    assert [one.changed for one in again] == [True, False]


def test_measured_and_modelled_speedups_are_not_compared(softmax):
    judge, _ = answers(timings={"w": passed("x", 2.0).timings["w"].model_copy(update={"kind": "measured"})})
    assert verify(softmax, None, judge)[0].ratio is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "holds no harvest (harvest.json)"),
        ("{", "not readable"),
        ('{"schema_version": 9, "elites": []}', "version 9"),
        ('{"schema_version": 1, "elites": [{"file": "a.py"}]}', "a kernel lacks"),
    ],
)
def test_a_folder_that_is_no_harvest_is_a_usage_error(tmp_path, text, said):
    if text is not None:
        (tmp_path / "harvest.json").write_text(text)
    outcome = call("verify", tmp_path)
    assert outcome.code == 2
    assert said in outcome.err


def test_verify_reads_no_file_outside_of_its_folder(softmax):
    facts = json.loads((softmax / "harvest.json").read_text())
    facts["elites"][0]["file"] = "../secret.py"
    (softmax / "harvest.json").write_text(json.dumps(facts))
    with pytest.raises(UsageError, match="no file of this folder"):
        verify(softmax, None, answers()[0])


@pytest.mark.slow
def test_kernevo_verify_judges_a_harvest_again_and_exits_with_three_when_one_is_wrong(tmp_path):
    out = made(tmp_path / "run", "softmax", tmp_path / "out")
    document = json.loads(call("verify", out, "--json").out)
    assert [(one["passed"], one["changed"]) for one in document["kernels"]] == [(True, False)]
    kernel = next(out.glob("softmax_1_*.py"))
    kernel.write_text(kernel.read_text().replace("/ row_sum", "/ (row_sum + 1)"))
    wrong = call("verify", out)
    assert wrong.code == 3
    assert "changed since it was harvested" in wrong.out
    assert "wrong_value" in wrong.err
