"""What runs the same is judged once; what differs anywhere on the device or in the host code's form is not the same."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("torch")

from evaluator import hardware
from evaluator.assemble import assemble
from evaluator.cascade import Facts, Verdict
from evaluator.compile import compile_workload
from evaluator.duplicates import Duplicates
from evaluator.judge import Judge
from evaluator.stages import resource_key
from evaluator.testing import RIGHT, SEED, TASK, changed
from evaluator.types import EvalStatus, Evaluation, KernelSource, Timing

JUDGE = Judge(TASK, 0)
SIMPLE = changed(
    """    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        total += tl.sum(x, axis=0)
""",
    """    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    total = tl.sum(x, axis=0)
""",
    SEED.replace("BLOCK = 64", "BLOCK = 16384"),
).text
"""Without a loop."""


def facts_of(source: KernelSource) -> Facts:
    facts = Facts(source)
    for workload in TASK.workloads:
        shapes = JUDGE.shapes(workload)
        launches = compile_workload(source.text, shapes.init_args, shapes.inputs, shapes.state, "h200")
        facts.compiled[workload.name] = launches
        facts.resources |= {resource_key(launch): assemble(launch, hardware.get("h200")) for launch in launches}
    return facts


def key(text: str, task=TASK) -> str:
    return Duplicates(task).key(facts_of(KernelSource(text=text)))


def test_names_comments_and_equal_expressions_change_nothing_that_runs():
    other = SEED.replace("cols", "columns").replace("total = 0.0", "total = 0.0  # the sum")
    other = other.replace("+ row * n_cols + columns", "+ (columns + row * n_cols)")
    other = other.replace("class ModelNew(torch.nn.Module):\n", 'class ModelNew(torch.nn.Module):\n    """Sums."""\n\n')
    assert other != SEED
    assert key(other) == key(SEED)


def test_stages_of_a_kernel_without_a_loop_change_nothing_that_runs():
    stages = [SIMPLE.replace("num_warps=4", f"num_warps=4, num_stages={count}") for count in (2, 3)]
    assert key(stages[0]) == key(stages[1]) == key(SIMPLE)


def test_right_kernels_of_the_conformance_suite_all_run_something_else():
    assert len({key(source.text) for source in RIGHT.values()}) == len(RIGHT)


def test_a_number_that_a_launch_hands_over_counts_and_one_that_reaches_nothing_does_not():
    def capped(most: int) -> str:
        return SEED.replace("x.shape[1], BLOCK", f"min(x.shape[1], {most}), BLOCK")

    assert key(capped(16384)) == key(capped(20000))
    assert key(capped(16384)) != key(capped(16000))


def test_numbers_of_host_code_that_may_compute_count():
    mixed = TASK.model_copy(update={"op_policy": "mixed"})
    one, two = (SEED.replace("return out", f"return out * {number}") for number in (1.0, 2.0))
    assert key(one, mixed) != key(two, mixed)
    assert key(SEED.replace("num_warps=4", "num_warps=4, num_stages=3"), mixed) == key(SEED, mixed)


def test_configs_that_only_the_device_would_try_count():
    def tuned(second: int) -> str:
        configs = f"[triton.Config({{'BLOCK': 64}}), triton.Config({{'BLOCK': {second}}})]"
        text = SEED.replace("@triton.jit", f"@triton.autotune({configs}, key=['n_cols'])\n@triton.jit")
        return text.replace(", BLOCK=BLOCK, num_warps=4", "")

    assert key(tuned(128)) != key(tuned(256))


def evaluation(source: KernelSource, passed: bool) -> Evaluation:
    status = EvalStatus.PASSED if passed else EvalStatus.WRONG_VALUE
    timings = {"tall": Timing(kind="measured", median_ms=0.25)} if passed else {}
    return Evaluation(source_sha=source.sha, task=TASK.name, evaluator="gpu", status=status, timings=timings)


class Twins:
    """Sources that run the same, and the register that judges them."""

    def __init__(self, monkeypatch):
        self.register = Duplicates(TASK)
        monkeypatch.setattr(self.register, "key", lambda facts: "the same")
        self.first, self.second = KernelSource(text="a"), KernelSource(text="b")

    def judge(self, source: KernelSource, passes: bool = True) -> Verdict | None:
        with self.register.candidate(source) as candidate:
            verdict = candidate.stage(lambda facts: None)(Facts(source))
            candidate.settle(evaluation(source, passes and verdict is None))
            return verdict


@pytest.fixture
def twins(monkeypatch):
    return Twins(monkeypatch)


def test_a_duplicate_is_told_of_whom_and_what_to_change(twins):
    assert twins.judge(twins.first) is None
    found = twins.judge(twins.second)
    assert found is not None
    assert found.status is EvalStatus.DUPLICATE
    assert twins.first.sha[:12] in found.reason
    assert "0.25 ms" in found.reason
    assert "block size" in found.explain


def test_the_same_source_again_is_no_duplicate_and_a_duplicate_stays_one(twins):
    asked = [twins.first, twins.second, twins.first, twins.second]
    assert [twins.judge(source) is None for source in asked] == [True, False, True, False]


def test_nothing_is_a_duplicate_of_a_failure(twins):
    assert twins.judge(twins.first, passes=False) is None
    assert twins.judge(twins.second) is None


@pytest.mark.parametrize("passes", [True, False])
def test_twins_that_are_judged_at_once_wait_for_the_first_ones_verdict(twins, passes):
    found: list[Verdict | None] = []
    second = threading.Thread(target=lambda: found.append(twins.judge(twins.second)))
    with twins.register.candidate(twins.first) as candidate:
        assert candidate.stage(lambda facts: None)(Facts(twins.first)) is None
        second.start()
        candidate.settle(evaluation(twins.first, passes))
    second.join(timeout=60)
    assert [verdict is not None for verdict in found] == [passes]


def test_a_kernel_that_does_not_compile_keeps_its_own_verdict(twins):
    refused = Verdict(EvalStatus.COMPILE_ERROR, "no such name")
    with twins.register.candidate(twins.first) as candidate:
        assert candidate.stage(lambda facts: refused)(Facts(twins.first)) is refused
