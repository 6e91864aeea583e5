from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from evaluator.errors import TaskError
from evaluator.judge import Judge, check_task, mutated, unstable
from evaluator.task import list_tasks, load_task
from evaluator.testing import REFERENCE, TASK
from evaluator.types import EvalStatus, Tolerance, Workload


def variant(**changes):
    return TASK.model_copy(update=changes)


@pytest.fixture(scope="module")
def judge():
    return Judge(TASK, 0)


def test_every_check_shape_is_run_and_every_variation_of_values_once(judge):
    labels = [case.label for case in judge.cases()]
    assert labels == ["one", "one, inputs x0.1", "prime", "prime, inputs x10", "even", "even, inputs + 1"]


def test_a_single_shape_is_run_with_every_variation():
    labels = [case.label for case in Judge(variant(check_shapes=TASK.check_shapes[1:2]), 0).cases()]
    assert labels == ["prime", "prime, inputs x10", "prime, inputs + 1", "prime, inputs x0.1"]


def test_the_reference_passes_its_own_cases(judge):
    for case in judge.cases():
        assert judge.compare(case, list(case.expected)).status is None


def test_workload_parameters_reach_inputs_and_outputs(judge):
    prime = next(case for case in judge.cases() if case.label == "prime")
    assert prime.inputs[0].shape == (7, 131)
    assert prime.expected[0].shape == (7,)


def test_equal_seeds_give_equal_cases_and_other_seeds_others():
    first, again, other = (Judge(TASK, seed).cases()[2].inputs[0] for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_callers_random_state_is_untouched():
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    Judge(TASK, 0).cases()
    assert torch.equal(torch.rand(3), wanted)


def test_what_a_worker_gets_holds_neither_expected_values_nor_the_reference(judge):
    for case in judge.cases():
        assert set(case.for_worker()) == {"init_args", "state", "inputs", "repeat"}
        assert not any(
            torch.equal(case.expected[0], value) for value in case.inputs if value.shape == case.expected[0].shape
        )


def test_float_benchmark_inputs_take_no_memory_and_integer_ones_keep_their_contents():
    task = load_task("cross_entropy")
    shapes = Judge(task, 0).shapes(task.workloads[0])
    logits, targets = shapes.inputs
    assert logits.is_meta
    assert not targets.is_meta
    assert int(targets.max()) < logits.shape[1]


@pytest.mark.parametrize("name", list_tasks())
def test_computed_bytes_agree_with_what_the_shipped_task_declares(name):
    task = load_task(name)
    judge = Judge(task, 0)
    for workload in task.workloads:
        assert judge.shapes(workload).bytes_moved == workload.bytes_moved


@pytest.mark.parametrize("name", list_tasks())
def test_shipped_tasks_have_an_exact_reference_and_are_not_passed_by_a_constant(name):
    task = load_task(name)
    assert all(case.exact is not None for case in Judge(task, 0).cases())
    assert check_task(task) == ""


def test_tolerance_grows_with_outputs_of_larger_inputs(judge):
    plain = next(case for case in judge.cases() if case.label == "prime")
    large = next(case for case in judge.cases() if case.label == "prime, inputs x10")
    assert plain.growth == 1
    assert 5 < large.growth < 20
    expected = torch.tensor([100.0, -100.0, 0.0])
    known = replace(large, exact=None, expected=[expected])
    assert judge.compare(known, [expected + 5e-4]).status is None
    assert judge.compare(replace(known, growth=1.0), [expected + 5e-4]).status is EvalStatus.WRONG_VALUE


def test_a_task_that_a_constant_passes_is_quarantined():
    task = variant(reference_source=REFERENCE.replace("x.sum(dim=1)", "torch.softmax(x, 1).sum(dim=1)"))
    assert "filled with 1" in check_task(task)


def test_a_task_whose_tolerance_lets_zeros_pass_is_quarantined():
    task = variant(
        reference_source=REFERENCE.replace("x.sum(dim=1)", "x.sum(dim=1) * 0"), tolerance=Tolerance(atol=1, rtol=0)
    )
    assert "filled with 0" in check_task(task)


def test_variants_that_the_reference_cannot_take_are_left_out():
    source = REFERENCE.replace(
        "return x.sum(dim=1)",
        "return torch.log(1.5 - x.abs().clamp(max=1.4) * (x.abs() < 9)).sum(1) / (x.abs().max() < 9)",
    )
    labels = [case.label for case in Judge(variant(reference_source=source), 0).cases()]
    assert "one" in labels
    assert "prime" in labels
    assert all("x10" not in label or label.startswith("one") for label in labels)


def test_a_reference_that_fails_is_the_tasks_fault_and_names_the_shape():
    task = variant(reference_source=REFERENCE.replace("x.sum(dim=1)", "x.summ(dim=1)"))
    with pytest.raises(TaskError, match=r"row_sums fails at one: AttributeError") as caught:
        Judge(task, 0).cases()
    assert "M=1, N=1" in caught.value.hint


def test_a_reference_without_a_model_is_named():
    task = variant(reference_source=REFERENCE.replace("class Model", "class Other"))
    with pytest.raises(TaskError, match="defines no Model"):
        Judge(task, 0).cases()


def test_parameters_of_the_reference_travel_as_state():
    constructor = (
        "    def __init__(self):\n        super().__init__()\n"
        "        self.weight = torch.nn.Parameter(torch.randn(N))\n\n"
    )
    source = REFERENCE.replace("    def forward", f"{constructor}    def forward").replace(
        "x.sum(dim=1)", "(x * self.weight).sum(dim=1)"
    )
    case = Judge(variant(reference_source=source), 0).cases()[2]
    assert case.state["weight"].shape == (131,)
    assert torch.allclose(case.expected[0], (case.inputs[0] * case.state["weight"]).sum(1))


def test_a_reference_that_converts_to_float32_still_gets_a_float64_answer():
    source = REFERENCE.replace("x.sum(dim=1)", "x.float().sum(dim=1)")
    case = Judge(variant(reference_source=source), 0).cases()[2]
    assert case.exact[0].dtype == torch.float64
    assert torch.allclose(case.exact[0], case.inputs[0].double().sum(1), rtol=1e-14)


def test_changed_inputs_are_named(judge):
    case = judge.cases()[2]
    assert mutated(case, dict(case.digests)) is None
    status, reason = mutated(case, {"input 0": "0" * 64})
    assert status is EvalStatus.INPUT_MUTATED
    assert "input 0" in reason
    assert mutated(case, None)[0] is EvalStatus.INPUT_MUTATED


def test_repeats_that_disagree_tell_unwritten_memory_from_chance(judge):
    from evaluator import wire

    case = next(case for case in judge.cases() if case.repeat)
    outputs = [case.expected[0]]
    mine = [wire.digest(case.expected[0])]
    assert unstable(case, outputs, {"other_filling": mine, "same_filling": mine}) is None
    assert unstable(case, outputs, {"other_filling": ["x"], "same_filling": mine})[0] is EvalStatus.UNINITIALISED
    assert unstable(case, outputs, {"other_filling": ["x"], "same_filling": ["y"]})[0] is EvalStatus.NONDETERMINISTIC
    assert unstable(case, outputs, {}) is not None


def test_benchmark_shapes_of_an_input_that_needs_its_values_are_made_for_real():
    source = REFERENCE.replace("return [torch.randn(M, N)]", "return [torch.randn(M, N) * float(torch.rand(1).item())]")
    workload = Workload(name="small", params={"M": 8, "N": 8})
    shapes = Judge(variant(reference_source=source, workloads=(workload,)), 0).shapes(workload)
    assert shapes.inputs[0].is_meta
    assert shapes.inputs[0].shape == (8, 8)
