"""Both judges leave a module in the mode its constructor leaves it in, and so they leave a candidate."""

from __future__ import annotations

import pytest
import torch

from evaluator.backends.cpu import CpuEvaluator
from evaluator.backends.gpu import GpuEvaluator
from evaluator.gpu_cases import DeviceCases
from evaluator.judge import Judge
from evaluator.testing import TASK, jobs
from evaluator.types import EvalStatus, KernelSource, Workload

REFERENCE = """import torch

M = 64
N = 16


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(N)
        MODE

    def forward(self, x):
        return self.norm(x * 3)


def get_inputs():
    return [torch.randn(M, N) + 5]
"""
ANSWER = """import torch
import triton
import triton.language as tl

N = 16


@triton.jit
def triple_kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < count) * 3.0, mask=at < count)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(N)
        MODE

    def forward(self, x):
        out = torch.empty_like(x)
        triple_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
        return self.norm(out)
"""
MODES = {"training, as constructors leave it": "", "evaluation, as the constructor asks": "self.eval()"}
SHAPES = (Workload(name="prime", params={"M": 7}), Workload(name="even", params={"M": 64}))


def task(mode):
    return TASK.model_copy(
        update={
            "reference_source": REFERENCE.replace("MODE", MODES[mode]),
            "seed_source": None,
            "workloads": SHAPES[1:],
            "check_shapes": SHAPES,
            "op_policy": "mixed",
        }
    )


def answer(mode):
    return KernelSource(text=ANSWER.replace("MODE", MODES[mode]))


def verdict(evaluator, source):
    with evaluator:
        ((_, found),) = evaluator.evaluate(jobs([source]))
    return found


def on_cpu(task):
    return CpuEvaluator(task, {"cache": False, "timeout_s": 30.0, "workers": 1})


def on_gpu(task):
    settings = {"platform": "interpreter", "baseline": "eager", "timing": "screen", "smoke": False, "workers": 1}
    return GpuEvaluator(task, {**settings, "timeout_s": 30.0, "cache": False})


@pytest.mark.parametrize("mode", MODES)
def test_both_judges_expect_what_the_module_gives_in_the_mode_its_constructor_leaves_it_in(mode):
    made = task(mode)
    case = Judge(made, 0).cases()[0]
    device_case = DeviceCases(made, 0, "cpu", 1 << 20).plain(SHAPES[1], 0)
    for inputs, (expected, *_) in ((case.inputs, case.expected), (device_case.inputs, device_case.expected)):
        x = inputs[0] * 3
        statistics = (x.mean(0), x.var(0, unbiased=False)) if mode.startswith("training") else (0.0, torch.ones(16))
        torch.testing.assert_close(expected, (x - statistics[0]) / (statistics[1] + 1e-5).sqrt())


def test_a_case_carries_the_statistics_from_before_the_reference_ran():
    case = Judge(task("training, as constructors leave it"), 0).cases()[0]
    assert torch.equal(case.state["norm.running_mean"], torch.zeros(16))
    assert "parameter norm.running_mean" not in case.digests
    assert "parameter norm.weight" in case.digests


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("judge", [on_cpu, on_gpu])
def test_an_answer_that_normalises_as_the_reference_does_passes_whichever_judge_asks(judge, mode):
    found = verdict(judge(task(mode)), answer(mode))
    assert found.status.passed, found.reason


@pytest.mark.parametrize("judge", [on_cpu, on_gpu])
def test_statistics_that_the_reference_leaves_alone_are_no_candidate_s_to_change(judge):
    mode = "evaluation, as the constructor asks"
    source = answer(mode).text.replace(
        "return self.norm(out)", "y = self.norm(out); self.norm.weight.add_(1); return y"
    )
    assert verdict(judge(task(mode)), KernelSource(text=source)).status is EvalStatus.INPUT_MUTATED
