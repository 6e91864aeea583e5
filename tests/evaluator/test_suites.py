"""Problems of five suites, in files we wrote in their formats: listed, loaded, judged beside the suite's own rule."""

from __future__ import annotations

import json

import pytest
import torch

from evaluator import loaders
from evaluator.backends.cpu import CpuEvaluator
from evaluator.errors import TaskError, UsageError
from evaluator.judge import Judge
from evaluator.loaders.placed import drawn, placed
from evaluator.task import load_task
from evaluator.testing import jobs
from evaluator.types import EvalStatus, KernelSource
from tests.evaluator.formats import FACTORS, FORMATS, KERNEL, TRITONBENCH, TWICE
from tests.evaluator.interpreter_driver import run_cases

SHAPE = "torch.rand(64, 96)"


@pytest.fixture(params=FORMATS)
def one(request, tmp_path):
    FORMATS[request.param].write(tmp_path)
    return FORMATS[request.param], tmp_path, f"{request.param}:{tmp_path}"


def test_a_suite_lists_its_problems_by_specs_that_load(one):
    form, _, suite = one
    ((spec, name),) = loaders.problems(suite)
    assert spec == f"{suite}/{form.task}"
    assert "wice" in name
    assert loaders.is_suite(suite)
    assert not loaders.is_suite(spec)
    task = load_task(spec)
    assert task.dtype == "float32"
    assert task.foreign


def outputs_of(source, takes_scale):
    """The kernel's output in the interpreter, and what it was given."""
    state = "torch.rand(96)"
    inputs = [SHAPE, state, *(["2"] if takes_scale else [])]
    case = {"kind": "small", "source": source, "inputs": inputs}
    if "self.shift" in source:  # the driver gives no parameters: the shift becomes an input
        source = source.replace("def __init__(self, width)", "def __init__(self)").replace("randn(width)", "randn(96)")
        source = source.replace("forward(self, x)", "forward(self, x, shift)").replace("(x, self.shift,", "(x, shift,")
        case["source"] = source
    torch.manual_seed(0)
    given = [torch.rand(64, 96), torch.rand(96)]
    answer = run_cases({"case": case})["case"]
    return given, torch.tensor(answer["outputs"][0], dtype=torch.float64).float().reshape(64, 96)


OURS = {"right": EvalStatus.PASSED, "a thousandth off": EvalStatus.WRONG_VALUE, "wrong": EvalStatus.WRONG_VALUE}


def test_our_verdict_stands_beside_the_suite_s_own(one):
    form, root, suite = one
    spec = f"{suite}/{form.task}"
    task = load_task(spec)
    sources = {name: loaders.as_kernel(spec, form.answer(factor)) for name, factor in FACTORS.items()}
    with CpuEvaluator(task, {"cache": False, "workers": 1, "timeout_s": 30.0}) as evaluator:
        found = list(evaluator.evaluate(jobs([KernelSource(text=text) for text in sources.values()])))
    ours = {name: evaluation.status for name, (_, evaluation) in zip(sources, found, strict=True)}
    assert ours == OURS, [evaluation.reason for _, evaluation in found]
    theirs = {}
    for name, source in sources.items():
        given, output = outputs_of(source, form.suite == "tritonbench")
        theirs[name] = form.passes(root, *given, output)
    assert theirs["right"]
    assert not theirs["wrong"]
    assert theirs["a thousandth off"] == (form.suite == "flashinfer")  # its bound is a hundredth


def test_every_call_that_tritonbench_s_tests_make_is_a_workload_with_its_defaults(tmp_path):
    (tmp_path / "twice.py").write_text(TRITONBENCH)
    judge = Judge(load_task(f"tritonbench:{tmp_path}/twice.py"), seed=1)
    assert [case.inputs[0].shape for case in judge.cases() if case.label.startswith("call")][:1] == [(64, 96)]
    assert [judge.shapes(one).inputs[0].shape for one in judge.task.workloads] == [(64, 96), (7, 96)]
    assert judge.cases()[0].inputs[2] == 2


def test_an_entry_of_tritonbench_s_json_file_takes_its_tests_from_the_folder_beside_it(tmp_path):
    (tmp_path / "TritonBench_T_v1").mkdir()
    (tmp_path / "TritonBench_T_v1" / "twice.py").write_text(TRITONBENCH)
    code = "def twice(x, shift, scale=2):\n    return x + x + shift\n"
    entry = {"name": "twice", "file": "twice.py", "torch_code": code, "description": "Twice."}
    path = tmp_path / "TritonBench_T_v1.json"
    path.write_text(json.dumps([entry]))
    assert loaders.problems(f"tritonbench:{path}") == [(f"tritonbench:{path}/twice", "twice")]
    assert "x + x + shift" in load_task(f"tritonbench:{path}/twice").reference_source
    with pytest.raises(TaskError, match="holds no twise"):
        load_task(f"tritonbench:{path}/twise")
    path.write_text("{]")
    with pytest.raises(TaskError, match="JSONDecodeError"):
        loaders.problems(f"tritonbench:{path}")


def test_a_triton_kernel_of_tritonbench_g_is_reference_and_seed_at_once(tmp_path):
    kernel = KERNEL.replace("FACTOR", "2.0") + TWICE.replace("shift):", "shift, scale):")
    tests = TRITONBENCH.split("#" * 146)[1].replace("x, shift)", "x, shift, 2)").replace("=shift)", "=shift, scale=2)")
    (tmp_path / "twice.py").write_text(f"{kernel}\n{'#' * 146}\n{tests}")
    task = load_task(f"tritonbench:{tmp_path}/twice")
    with CpuEvaluator(task, {"cache": False, "workers": 1, "timeout_s": 30.0}) as evaluator:
        ((_, found),) = evaluator.evaluate(jobs([KernelSource(text=task.seed_source)]))
    assert found.status.passed, found.reason


def test_a_gpu_mode_problem_has_its_benchmarks_timed_its_tests_checked_and_its_seeds_drawn_anew(tmp_path):
    FORMATS["gpu_mode"].write(tmp_path)
    task = load_task(f"gpu_mode:{tmp_path}/first/twice_py")
    assert task.description == "Twice a matrix, and a shift for every row."
    assert [dict(one.params)["given_rows"] for one in task.workloads] == [64, 128]
    assert [dict(one.params)["given_rows"] for one in task.check_shapes] == [7, 64]
    first, other = (Judge(task, seed).cases()[0].inputs[0] for seed in (1, 2))
    assert first.shape == (7, 33)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("task.yml", "files:", "fills:", "task.yml: lists no files"),
        ("task.yml", "tests:\n", "tests: 3\nothers:\n", "tests is no list of mappings"),
        ("task.yml", '"source": "task.py"', '"source": "tusk.py"', "tusk.py: No such file"),
        ("reference.py", "ref_kernel", "my_kernel", "defines no ref_kernel"),
        ("reference.py", "x * 2", "x * dos", "NameError"),
    ],
)
def test_what_is_wrong_with_a_gpu_mode_problem_is_said_in_one_line(tmp_path, file, old, new, said):
    FORMATS["gpu_mode"].write(tmp_path)
    path = tmp_path / "first" / "twice_py" / file
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(TaskError, match=said) as refused:
        load_task(f"gpu_mode:{tmp_path}/first/twice_py")
    assert "\n" not in refused.value.message


def test_a_solution_that_returns_its_output_is_taken_too_and_a_broken_one_is_refused(tmp_path):
    FORMATS["flashinfer"].write(tmp_path)
    spec = f"flashinfer:{tmp_path}/definitions/twice/twice_w96.json"
    solution = json.loads(FORMATS["flashinfer"].answer("2.0"))
    solution["sources"][0]["content"] = "def run(x, shift):\n    return x\n"
    assert "return run(x, shift)" in loaders.as_kernel(spec, json.dumps(solution))
    solution["spec"]["entry_point"] = "main.py::ran"
    with pytest.raises(TaskError, match="a solution of"):
        loaders.as_kernel(spec, json.dumps(solution))


def test_a_kernel_that_has_model_new_already_stays_as_it_is(tmp_path):
    assert loaders.as_kernel(f"tritonbench:{tmp_path}/none.py", "class ModelNew: ...") == "class ModelNew: ..."
    assert loaders.as_kernel("softmax", "text") == "text"


def test_inside_placed_devices_generators_and_seeds_mean_nothing_and_outside_they_do_again():
    def made(seed):
        generator = torch.Generator(device="cuda").manual_seed(seed)
        torch.manual_seed(seed)
        return torch.rand(3, device="cuda", generator=generator).cuda().to("cuda", torch.float64), seed

    first, again = (drawn(made, {"seed": 1}) for _ in range(2))
    assert first[0].dtype == torch.float64
    assert first[1] != again[1]
    assert not torch.equal(first[0], again[0])
    with pytest.raises(ZeroDivisionError), placed():
        raise ZeroDivisionError
    assert torch.Generator is type(torch.Generator())
    torch.manual_seed(3)
    wanted = torch.rand(2)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(2), wanted)


def test_an_empty_folder_and_an_unknown_suite_are_said_to_be_that(tmp_path):
    for name in loaders.SUITES:
        with pytest.raises(TaskError, match="holds no"):
            loaders.problems(f"{name}:{tmp_path}")
    with pytest.raises(UsageError, match="no suite"):
        loaders.problems("nowhere:x")
    with pytest.raises(UsageError, match="only KernelBench has levels"):
        loaders.problems(f"gpu_mode:{tmp_path}", level=1)
