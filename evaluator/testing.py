# ruff: noqa: D102  (test names are sentences)
"""Conformance suite for evaluators: a backend's test class inherits it and supplies two fixtures.

    class TestMine(EvaluatorTestCase):
        @pytest.fixture
        def make(self):
            return lambda task: MyEvaluator(task)  # without a cache, with a timeout of a few seconds

        @pytest.fixture
        def evaluator(self, one_for_the_whole_module):
            return one_for_the_whole_module

The suite brings its own small task (row sums of float32), its seed and its bad kernels, so it runs anywhere the
backend does. pytest is needed by the tests that use it, not by this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evaluator.protocol import Evaluator
from evaluator.types import EvalStatus, EvaluationJob, KernelSource, Task, Tolerance, Workload

REFERENCE = '''"""Sums of the rows of a matrix."""
import torch

M = 64
N = 128


class Model(torch.nn.Module):
    def forward(self, x):
        return x.sum(dim=1)


def get_inputs():
    return [torch.randn(M, N)]


def get_init_inputs():
    return []
'''

SEED = """import torch
import triton
import triton.language as tl

BLOCK = 64


@triton.jit
def sum_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        total += tl.sum(x, axis=0)
    tl.store(out_ptr + row, total)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        sum_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=BLOCK, num_warps=4)
        return out
"""

TASK = Task(
    name="row_sums",
    description="Sums of the rows of a float32 matrix.",
    reference_source=REFERENCE,
    seed_source=SEED,
    origin="evaluator.testing",
    dtype="float32",
    tolerance=Tolerance(atol=1e-4, rtol=1e-4),
    workloads=(
        Workload(name="tall", params={"M": 4096, "N": 1024}, bytes_moved=4096 * 1024 * 4 + 4096 * 4),
        Workload(name="wide", params={"M": 256, "N": 16384}, bytes_moved=256 * 16384 * 4 + 256 * 4),
    ),
    check_shapes=(
        Workload(name="one", params={"M": 1, "N": 1}),
        Workload(name="prime", params={"M": 7, "N": 131}),
        Workload(name="even", params={"M": 4, "N": 256}),
    ),
    family="reduction",
)


def changed(old: str, new: str, source: str = SEED) -> KernelSource:
    """The seed with one piece of text replaced; `AssertionError` when the piece is not there."""
    assert old in source, old
    return KernelSource(text=source.replace(old, new))


WRONG: dict[str, tuple[KernelSource, EvalStatus]] = {
    "a syntax error": (changed("def forward(self, x):", "def forward(self, x:"), EvalStatus.SYNTAX_ERROR),
    "no ModelNew": (changed("class ModelNew", "class Model2"), EvalStatus.MISSING_ENTRY_POINT),
    "an import of ctypes": (changed("import torch\n", "import ctypes\nimport torch\n"), EvalStatus.REJECTED_STATIC),
    "a name the kernel lacks": (changed("total += tl.sum", "total += tl.smu"), EvalStatus.COMPILE_ERROR),
    "an exception": (changed("return out", "raise ValueError('no result today')"), EvalStatus.RUNTIME_ERROR),
    "an endless loop": (changed("        return out", "        while True:\n            pass"), EvalStatus.TIMEOUT),
    "endless output": (
        changed("        return out", "        while True:\n            print('x' * 65536)"),
        EvalStatus.OUTPUT_LIMIT,
    ),
    "a wrong shape": (changed("return out", "return out[:, None]"), EvalStatus.WRONG_SHAPE),
    "a wrong dtype": (changed("return out", "return out.half()"), EvalStatus.WRONG_DTYPE),
    "a wrong value": (changed("total = 0.0", "total = 1.0"), EvalStatus.WRONG_VALUE),
    "NaN output": (changed("total = 0.0", "total = float('nan')"), EvalStatus.NON_FINITE),
    "a changed input": (
        changed(
            "    tl.store(out_ptr + row, total)", "    tl.store(out_ptr + row, total)\n    tl.store(x_ptr + row, 0.0)"
        ),
        EvalStatus.INPUT_MUTATED,
    ),
    "reads past the end": (
        changed("mask=cols < n_cols, other=0.0", "mask=cols < 4 * n_cols, other=0.0"),
        EvalStatus.OUT_OF_BOUNDS,
    ),
    "unwritten output": (
        changed("    tl.store(out_ptr + row, total)", "    tl.store(out_ptr + row, total, mask=row > 0)"),
        EvalStatus.UNINITIALISED,
    ),
    "no kernel launched": (
        changed(
            "        sum_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=BLOCK, num_warps=4)\n",
            "        if x.shape[0] < 0:\n            sum_kernel[(1,)](x, out, 1, BLOCK=BLOCK)\n",
        ),
        EvalStatus.FALLBACK,
    ),
}
"""By what is wrong: a kernel of `TASK` and the verdict it must get."""

RIGHT: dict[str, KernelSource] = {
    "the seed": KernelSource(text=SEED),
    "another block": changed("BLOCK = 64", "BLOCK = 256"),
    "more warps": changed("num_warps=4", "num_warps=8"),
    "a scratch buffer": changed("out = torch.empty(", "scratch = torch.empty_like(x)\n        out = torch.empty("),
    "prints a line": changed("        return out", "        print('hello')\n        return out"),
}
"""Correct kernels of `TASK`."""


def jobs(sources: list[KernelSource]) -> list[EvaluationJob]:
    """One job per source, named by position."""
    return [EvaluationJob(job_id=f"j{index}", source=source) for index, source in enumerate(sources)]


class EvaluatorTestCase:
    """What every evaluator must do. Fixtures: `make` (Task -> Evaluator) and `evaluator` (one for `task`)."""

    task: Task = TASK
    """The suite's task; a slow evaluator may give it smaller workloads."""

    def test_it_judges_the_task_it_was_made_for(self, evaluator: Evaluator) -> None:
        assert evaluator.task == self.task

    def test_right_kernels_pass_with_timings_for_every_workload(self, evaluator: Evaluator) -> None:
        for name, (_, found) in zip(RIGHT, evaluator.evaluate(jobs(list(RIGHT.values()))), strict=True):
            assert found.status is EvalStatus.PASSED, f"{name}: {found.reason}"
            assert set(found.timings) == {workload.name for workload in self.task.workloads}
            assert found.checks_passed == found.checks_total > 0
            assert found.profile is not None

    def test_the_seed_is_as_fast_as_itself(self, evaluator: Evaluator) -> None:
        ((_, found),) = evaluator.evaluate(jobs([RIGHT["the seed"]]))
        assert found.speedup is not None
        assert abs(found.speedup - 1) < 0.2

    def test_wrong_kernels_get_their_own_verdicts(self, evaluator: Evaluator) -> None:
        sources = [source for source, _ in WRONG.values()]
        for (name, (_, status)), (_, found) in zip(WRONG.items(), evaluator.evaluate(jobs(sources)), strict=True):
            assert found.status is status, f"{name}: {found.status}: {found.reason}"
            assert found.reason, name
            assert "\n" not in found.reason, name
            assert not found.timings, name

    def test_results_come_in_the_order_of_the_jobs(self, evaluator: Evaluator) -> None:
        slow, quick = WRONG["a wrong value"][0], WRONG["a syntax error"][0]
        asked = jobs([slow, quick, RIGHT["the seed"], quick])
        answered = list(evaluator.evaluate(asked))
        assert [job for job, _ in answered] == asked
        assert [found.source_sha for _, found in answered] == [job.source.sha for job in asked]

    def test_the_same_source_gets_the_same_verdict_again(self, evaluator: Evaluator) -> None:
        source = WRONG["a wrong value"][0]
        (_, first), (_, again) = (next(iter(evaluator.evaluate(jobs([source])))) for _ in range(2))
        assert (first.status, first.reason, first.max_error) == (again.status, again.reason, again.max_error)

    def test_no_jobs_give_no_results(self, evaluator: Evaluator) -> None:
        assert list(evaluator.evaluate([])) == []

    def test_a_consumer_may_stop_early_and_go_on(self, evaluator: Evaluator) -> None:
        next(iter(evaluator.evaluate(jobs(list(RIGHT.values())))))
        ((_, found),) = evaluator.evaluate(jobs([RIGHT["more warps"]]))
        assert found.status.passed

    def test_closing_twice_is_harmless(self, make: Callable[[Task], Any]) -> None:
        made = make(self.task)
        made.close()
        made.close()
