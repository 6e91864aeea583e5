"""Autotuned kernels on the cpu evaluator: every listed config is checked alone, others stand behind their first."""

from __future__ import annotations

import pytest

from evaluator.backends.cpu import CpuEvaluator
from evaluator.stages import MAX_CONFIGS
from evaluator.task import load_task
from evaluator.testing import jobs
from evaluator.types import EvalStatus, KernelSource
from tests.exploits.corpus import HERE

TWO_CONFIGS = (HERE / "controls" / "softmax_autotuned_two_configs.py").read_text()
EACH_A_HALF = (HERE / "cpu" / "every_second_row_by_each_config.py").read_text()
CONFIGS = "[triton.Config({}, num_warps=4), triton.Config({'WRONG': 1}), triton.Config({'WRONG': 1, 'BREAKS': 1})]"
KERNEL = f"""import torch
import triton
import triton.language as tl


@triton.autotune({CONFIGS}, key=["n_cols"])
@triton.jit
def softmax_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr, WRONG: tl.constexpr = 0, BREAKS: tl.constexpr = 0):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    if BREAKS:
        e = tl.reshape(e, (3, 5))
    tl.store(out_ptr + row * n_cols + cols, e / tl.sum(e, axis=0) + WRONG, mask=cols < n_cols)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
"""


def with_configs(configs):
    return KERNEL.replace(CONFIGS, configs)


@pytest.fixture(scope="module")
def judge():
    task = load_task("softmax")
    task = task.model_copy(update={"workloads": task.workloads[:1], "check_shapes": task.check_shapes[:2]})
    with CpuEvaluator(task, {"cache": False, "workers": 1}) as evaluator:
        yield lambda source: next(iter(evaluator.evaluate(jobs([KernelSource(text=source)]))))[1]


@pytest.fixture(scope="module")
def checks_of_one(judge):
    """Checks that a kernel without configs goes through."""
    return judge(load_task("softmax").seed_source).checks_total


def test_an_honest_kernel_with_two_configs_passes_each_ones_checks(judge, checks_of_one):
    found = judge(TWO_CONFIGS)
    assert found.status.passed, found.explain
    assert found.checks_passed == found.checks_total == 2 * checks_of_one
    assert found.kind == "modelled"


def test_two_half_wrong_configs_do_not_pass_together(judge):
    found = judge(EACH_A_HALF)
    assert found.status is EvalStatus.UNINITIALISED
    assert found.reason.startswith("config 1 of 2: prime: ")
    assert found.explain.startswith("config 1 of 2 (SIDE=0)\n")


def test_the_first_objection_names_its_config(judge, checks_of_one):
    found = judge(KERNEL)
    assert found.status is EvalStatus.WRONG_VALUE
    assert found.reason.startswith("config 2 of 3: one: ")
    assert found.explain.splitlines()[0] == "config 2 of 3 (WRONG=1)"
    assert (found.checks_passed, found.checks_total) == (checks_of_one, 3 * checks_of_one)


def test_an_exception_under_one_config_cites_the_line_of_the_whole_source(judge):
    found = judge(with_configs("[\n    triton.Config({}),\n    triton.Config({'BREAKS': 1})\n]"))
    line = with_configs("[\n\n\n]").splitlines().index("        e = tl.reshape(e, (3, 5))") + 1
    assert found.status is EvalStatus.RUNTIME_ERROR
    assert found.reason.startswith("config 2 of 2: one: ")
    assert f"candidate.py:{line}" in found.reason


def test_computed_configs_stand_behind_their_first(judge, checks_of_one):
    found = judge(with_configs("[triton.Config({'WRONG': wrong}) for wrong in (0, 1)]"))
    assert found.status.passed, found.explain
    assert found.checks_passed == found.checks_total == checks_of_one
    assert judge(with_configs("[triton.Config({'WRONG': wrong}) for wrong in (1, 0)]")).status is EvalStatus.WRONG_VALUE


def test_the_hook_of_the_first_config_runs(judge):
    source = with_configs("[triton.Config({}, pre_hook=clear), triton.Config({'WRONG': 1})]")
    clear = "def clear(arguments):\n    arguments['out_ptr'].zero_()\n\n\n@triton.autotune"
    adding = source.replace("@triton.autotune", clear).replace("tl.store(", "tl.atomic_add(")
    found = judge(adding)
    assert found.status.passed, found.explain


def test_a_note_says_when_only_some_of_the_configs_were_run(judge, checks_of_one):
    listed = ", ".join(["triton.Config({})"] * (MAX_CONFIGS + 4))
    found = judge(with_configs(f"[{listed}]"))
    assert found.status.passed, found.explain
    assert found.checks_passed == found.checks_total == MAX_CONFIGS * checks_of_one
    assert f"{MAX_CONFIGS} of {MAX_CONFIGS + 4} autotune configs were run in the interpreter" in found.explain
