"""Modules in other people's formats become tasks as they are, or are refused in one line with file and cause."""

from __future__ import annotations

import json
import os

import pytest
import torch

from evaluator import child
from evaluator.errors import TaskError
from evaluator.judge import Judge
from evaluator.quarantine import reasons
from evaluator.task import load_task

PROBLEM = """import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(classes))
        self.same = self.scale

    def forward(self, x, target):
        BODY

rows = 65536
classes = 1000000

def get_inputs():
    return [torch.rand(rows, classes), torch.randint(0, classes, (rows,))]

def get_init_inputs():
    return [classes]
"""
PLAIN = "return (x * self.scale).gather(1, target[:, None])"


def problem(body=PLAIN, head=""):
    return head + PROBLEM.replace("BODY", body)


@pytest.fixture
def suite(tmp_path):
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "24_Pick.py").write_text(problem())
    return tmp_path


def test_a_kernelbench_problem_loads_unchanged_whatever_memory_its_own_sizes_need(suite):
    task = load_task(f"kernelbench:{suite}/level1/24")  # 260 GB of inputs
    assert task.reference_source == problem()
    assert dict(task.workloads[0].params) == {"rows": 65536, "classes": 1000000}
    assert (task.dtype, task.op_policy, task.tolerance.atol) == ("float32", "strict", 1e-4)
    assert all(shape.params["rows"] <= 128 for shape in task.check_shapes)


def test_integer_inputs_stay_integers_and_shared_parameters_are_given_by_both_names(suite):
    case = Judge(load_task(f"kernelbench:{suite}/level1/24"), seed=1).cases()[0]
    assert case.inputs[1].dtype == torch.int64
    assert set(case.state) == {"scale", "same"}


def test_json_lines_hold_the_same_problems(suite, tmp_path):
    line = {"code": problem(), "level": 2, "name": "24_Pick", "problem_id": 24}
    (tmp_path / "all.jsonl").write_text(json.dumps(line) + "\n")
    task = load_task(f"kernelbench:{tmp_path}/all.jsonl/level2/24")
    assert (task.reference_source, task.op_policy) == (problem(), "mixed")


def test_outputs_in_a_dict_and_a_tuple_are_judged_leaf_by_leaf(suite):
    (suite / "level1" / "24_Pick.py").write_text(problem('return {"a": x * 2, "b": (x + 1,)}'))
    assert len(Judge(load_task(f"kernelbench:{suite}/level1/24"), seed=1).cases()[0].expected) == 2


def test_a_reference_that_changes_its_input_is_judged_by_what_it_returns(suite):
    (suite / "level1" / "24_Pick.py").write_text(problem("return x.add_(1)"))
    case = Judge(load_task(f"kernelbench:{suite}/level1/24"), seed=1).cases()[0]
    assert torch.equal(case.expected[0], case.inputs[0] + 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (problem(head="raise ValueError('not today')\n"), r"24_Pick\.py:1: ValueError: not today"),
        (problem(head="import nowhere_at_all\n"), r"24_Pick\.py:1: ModuleNotFoundError: .*nowhere_at_all"),
        (problem("return None"), r"24_Pick\.py: forward returns None"),
        (problem("return x, 'text'"), r"24_Pick\.py: forward returns a str"),
        (problem("return torch.nn.functional.dropout(x, 0.5)"), r"24_Pick\.py: forward is random"),
        (problem("import os; os._exit(3)"), r"24_Pick\.py: running it ended with code 3"),
        (problem().replace("class Model", "class Net"), r"24_Pick\.py: the module defines no Model"),
    ],
)
def test_what_cannot_be_a_task_is_refused_with_file_and_cause(suite, text, said):
    (suite / "level1" / "24_Pick.py").write_text(text)
    with pytest.raises(TaskError, match=said) as refused:
        load_task(f"kernelbench:{suite}/level1/24")
    assert "\n" not in refused.value.message


def test_a_reference_from_elsewhere_never_runs_in_the_process_of_the_judge(suite):
    (suite / "level1" / "24_Pick.py").write_text(problem("return x + os.getpid()", head="import os\n"))
    judge = Judge(load_task(f"kernelbench:{suite}/level1/24"), seed=1)
    case = judge.cases()[0]
    assert not torch.equal(case.expected[0], case.inputs[0] + os.getpid())
    assert judge.shapes(judge.task.workloads[0]).inputs[0].shape == (65536, 1000000)


ONLY_IN_THE_JUDGE = "import sys\nprobed = 'evaluator.judge' not in sys.modules\n"


@pytest.mark.parametrize(
    ("body", "limit", "said"),
    [
        ("while not probed: pass", {"TIMEOUT_S": 3.0}, "running it took longer than 3 s"),
        ("x = x if probed else x + torch.ones(1 << 32)[:1]", {"MEMORY_BYTES": 4 << 30}, "RuntimeError"),
        ("probed or __import__('os')._exit(7)", {}, "running it ended with code 7"),
        ("probed or __import__('os').abort()", {}, "running it was ended by SIGABRT"),
    ],
)
def test_a_reference_that_misbehaves_once_it_is_judged_is_refused_in_one_line(suite, monkeypatch, body, limit, said):
    (suite / "level1" / "24_Pick.py").write_text(problem(f"{body}\n        return x", head=ONLY_IN_THE_JUDGE))
    task = load_task(f"kernelbench:{suite}/level1/24")
    for name, value in limit.items():
        monkeypatch.setattr(child, name, value)
    with pytest.raises(TaskError, match=rf"24_Pick\.py: .*{said}") as refused:
        reasons(task)
    assert "\n" not in refused.value.message


def test_inputs_that_cannot_be_sent_are_said_to_be_the_task_s_fault(suite):
    text = problem("return x").replace("torch.randint(0, classes, (rows,))", "range(3)")
    (suite / "level1" / "24_Pick.py").write_text(text)
    with pytest.raises(TaskError, match="cannot be sent"):
        Judge(load_task(f"kernelbench:{suite}/level1/24"), seed=1).cases()


def test_a_problem_that_is_not_there_is_said_to_be_missing(suite):
    with pytest.raises(TaskError, match="level 1 has no problem 26"):
        load_task(f"kernelbench:{suite}/level1/26")
    with pytest.raises(TaskError, match="holds no problem of level 3"):
        load_task(f"kernelbench:{suite}/level3/24")


def test_a_plain_module_and_a_plain_function_are_tasks(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(problem() + "\ndef double(x, target):\n    return x * 2\n")
    assert load_task(str(path)).name == "mine"
    case = Judge(load_task(f"{path}:double"), seed=1).cases()[0]
    assert torch.equal(case.expected[0], case.inputs[0] * 2)
    with pytest.raises(TaskError, match="defines no doubel"):
        load_task(f"{path}:doubel")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return x * 0 + 3", "an output filled with 3 passes every check"),
        ("return x * self.scale", "does not depend on input 1 of 2"),
    ],
)
def test_a_task_that_cannot_tell_kernels_apart_is_quarantined_with_the_reason(suite, body, said):
    (suite / "level1" / "24_Pick.py").write_text(problem(body))
    assert any(said in reason for reason in reasons(load_task(f"kernelbench:{suite}/level1/24")))


def test_a_task_below_the_cost_of_a_launch_is_too_small_to_time_and_a_sound_one_is_left_alone(suite):
    (suite / "level1" / "24_Pick.py").write_text(problem().replace("65536", "256").replace("1000000", "64"))
    (found,) = reasons(load_task(f"kernelbench:{suite}/level1/24"))
    assert "too small to time" in found
    (suite / "level1" / "24_Pick.py").write_text(problem())
    assert reasons(load_task(f"kernelbench:{suite}/level1/24")) == []


ROBUST = """import torch


def forward_fn(x, weight, shift):
    return x * weight + shift


class Model(torch.nn.Module):
    def __init__(self, width, start="random", shift=1.0):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width) if start == "random" else torch.ones(width))
        self.shift = shift

    def forward(self, x, fn=forward_fn):
        return fn(x, self.weight, self.shift)


def get_inputs(rows=16, width=8):
    return [torch.randn(rows, width)]
"""


def test_a_robust_kbench_folder_gives_a_workload_for_each_of_its_configs(tmp_path):
    (tmp_path / "func_forward.py").write_text(ROBUST)
    config = {f"{kind}_shared_configs": [{"width": 64}] for kind in ("single", "multi")}
    config |= {f"{kind}_init_configs": [{"start": "random"}] for kind in ("single", "multi")}
    config |= {"single_input_configs": [{"rows": 512}], "multi_input_configs": [{"rows": 512}, {"rows": 32}]}
    (tmp_path / "config_forward.json").write_text(json.dumps(config))
    task = load_task(f"robust_kbench:{tmp_path}")
    assert task.reference_source.startswith(ROBUST)
    assert [dict(one.params)["given_rows"] for one in task.workloads] == [512, 32]
    judge = Judge(task, seed=1)
    assert [judge.shapes(one).inputs[0].shape for one in task.workloads] == [(512, 64), (32, 64)]
    assert judge.cases()[0].init_args[1:] == ["random", 1.0]
    (tmp_path / "config_forward.json").write_text("{]")
    with pytest.raises(TaskError, match=r"config_forward\.json: JSONDecodeError"):
        load_task(f"robust_kbench:{tmp_path}")


def test_a_flashinfer_definition_gives_its_workloads_with_integer_and_scalar_inputs(tmp_path):
    for folder in ("definitions", "workloads"):
        (tmp_path / folder / "pick").mkdir(parents=True)
    definition = {
        "name": "pick_scaled",
        "op_type": "pick",
        "axes": {"rows": {"type": "var"}, "width": {"type": "const", "value": 128}},
        "inputs": {
            "x": {"shape": ["rows", "width"], "dtype": "bfloat16"},
            "index": {"shape": ["rows"], "dtype": "int64"},
            "scale": {"shape": None, "dtype": "float32"},
        },
        "outputs": {"out": {"shape": ["rows"], "dtype": "bfloat16"}},
        "reference": "def run(x, index, scale):\n    return (x * scale).gather(1, index[:, None])[:, 0]\n",
    }
    path = tmp_path / "definitions" / "pick" / "pick_scaled.json"
    path.write_text(json.dumps(definition))
    inputs = {"x": {"type": "random"}, "index": {"type": "random"}, "scale": {"type": "scalar", "value": 0.5}}
    lines = [{"workload": {"axes": {"rows": rows}, "inputs": inputs, "uuid": f"u{rows}"}} for rows in (512, 64)]
    place = tmp_path / "workloads" / "pick" / "pick_scaled.jsonl"
    place.write_text("\n".join(map(json.dumps, lines)))
    task = load_task(f"flashinfer:{path}")
    assert (task.dtype, [one.name for one in task.workloads]) == ("bfloat16", ["u512", "u64"])
    assert dict(task.workloads[1].params) == {"rows": 64, "width": 128, "scale": 0.5}
    x, index, scale = Judge(task, seed=1).cases()[0].inputs
    assert (x.dtype, index.dtype, scale) == (torch.bfloat16, torch.int64, 0.5)
    place.write_text(place.read_text().replace('"random"', '"safetensors"'))
    with pytest.raises(TaskError, match=r"pick_scaled\.jsonl: input x is neither random nor a scalar"):
        load_task(f"flashinfer:{path}")
