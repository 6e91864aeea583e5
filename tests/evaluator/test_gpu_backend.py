"""The whole gpu cascade on the interpreter platform: everything but the device is real."""

from __future__ import annotations

import pytest

from evaluator import gpu_recall, gpu_stages
from evaluator.backends import create
from evaluator.backends.gpu import LEAST_BYTES, GpuEvaluator, arena_plan, candidates_plan
from evaluator.errors import EnvironmentUnusableError, TaskError
from evaluator.gpu_cases import DeviceCases
from evaluator.testing import SEED, TASK, EvaluatorTestCase, changed, jobs
from evaluator.types import EvalStatus, KernelSource, Workload

SMALL = TASK.model_copy(
    update={
        "workloads": (Workload(name="tall", params={"M": 8, "N": 64}),),
        "check_shapes": (
            Workload(name="one", params={"M": 1, "N": 1}),
            Workload(name="prime", params={"M": 7, "N": 67}),
        ),
    }
)
SETTINGS = {
    "platform": "interpreter",
    "baseline": "seed",
    "timing": "screen",
    "smoke": False,
    "workers": 2,
    "timeout_s": 10.0,
}


def one(evaluator, source):
    ((_, found),) = evaluator.evaluate(jobs([source]))
    return found


@pytest.fixture(scope="module")
def evaluator():
    with GpuEvaluator(SMALL, {**SETTINGS, "cache": False}) as evaluator:
        yield evaluator


class TestGpuEvaluator(EvaluatorTestCase):
    task = SMALL

    @pytest.fixture
    def evaluator(self, evaluator):
        return evaluator

    @pytest.fixture
    def make(self):
        return lambda task: GpuEvaluator(task, {**SETTINGS, "cache": False})

    def test_the_seed_is_as_fast_as_itself(self, evaluator):
        """Without a GPU there is no clock worth a tolerance; the ratio is there and its baseline is named."""
        found = one(evaluator, KernelSource(text=SEED))
        assert found.speedup is not None
        assert {timing.baseline for timing in found.timings.values()} == {"seed"}
        assert found.kind == "measured"


@pytest.fixture(scope="module")
def on_cuda():
    with GpuEvaluator(TASK, {"baseline": "seed", "timing": "screen", "timeout_s": 20.0, "cache": False}) as evaluator:
        yield evaluator


@pytest.mark.gpu
class TestGpuEvaluatorOnCuda(EvaluatorTestCase):
    """The same suite on a GPU, smoke stage and all."""

    @pytest.fixture
    def evaluator(self, on_cuda):
        return on_cuda

    @pytest.fixture
    def make(self):
        return lambda task: GpuEvaluator(task, {"timeout_s": 20.0, "cache": False})


REMEMBERS = changed(
    "class ModelNew(torch.nn.Module):\n",
    "class ModelNew(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.seen = {}\n\n",
)


def remembering(key: str) -> KernelSource:
    text = REMEMBERS.text.replace(
        "        out = torch.empty(",
        f"        if {key} in self.seen:\n            return self.seen[{key}]\n        out = torch.empty(",
    )
    return KernelSource(text=text.replace("        return out", f"        self.seen[{key}] = out\n        return out"))


def test_an_output_remembered_by_shape_is_a_replay(evaluator):
    found = one(evaluator, remembering("x.shape"))
    assert found.status is EvalStatus.REPLAY, found.reason


def test_a_buffer_kept_for_all_calls_is_a_replay(evaluator):
    text = REMEMBERS.text.replace("self.seen = {}", "self.out = None").replace(
        "        out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)\n",
        "        if self.out is None or self.out.shape[0] != x.shape[0]:\n"
        "            self.out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)\n        out = self.out\n",
    )
    found = one(evaluator, KernelSource(text=text))
    assert found.status is EvalStatus.REPLAY, found.reason
    assert "memory" in found.reason


def test_work_that_is_left_out_once_calls_are_many_is_a_replay(evaluator):
    text = REMEMBERS.text.replace("self.seen = {}", "self.calls = 0").replace(
        "        sum_kernel[",
        "        self.calls += 1\n        rows = x.shape[0] if self.calls < 12 else 1\n        sum_kernel[",
    )
    text = text.replace("sum_kernel[(x.shape[0],)]", "sum_kernel[(rows,)]")
    found = one(evaluator, KernelSource(text=text))
    assert found.status in (EvalStatus.REPLAY, EvalStatus.WRONG_VALUE, EvalStatus.UNINITIALISED), found.reason
    assert not found.timings


def test_less_work_at_benchmark_shapes_is_wrong(evaluator):
    source = changed("sum_kernel[(x.shape[0],)]", "sum_kernel[(x.shape[0] if x.shape[0] < 8 else 5,)]")
    found = one(evaluator, source)
    assert found.status in (EvalStatus.UNINITIALISED, EvalStatus.WRONG_VALUE, EvalStatus.NON_FINITE), found.reason
    assert "tall" in found.reason


def test_a_write_behind_an_own_output_is_out_of_bounds(evaluator):
    source = changed(
        "    tl.store(out_ptr + row, total)",
        "    tl.store(out_ptr + row, total)\n    tl.store(out_ptr + row + 1, total, mask=row >= 3)",
    )
    found = one(evaluator, source)
    assert found.status is EvalStatus.OUT_OF_BOUNDS, found.reason


def test_a_kernel_that_could_be_left_out_is_a_decoy():
    mixed = SMALL.model_copy(update={"op_policy": "free"})
    source = changed(
        "        sum_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=BLOCK, num_warps=4)\n        return out",
        "        sum_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=BLOCK, num_warps=4)\n        return x.sum(dim=1)",
    )
    with GpuEvaluator(mixed, {**SETTINGS, "cache": False, "workers": 1, "baseline": "none"}) as evaluator:
        found = one(evaluator, source)
    assert found.status is EvalStatus.DECOY, found.reason
    assert not found.timings


def test_without_a_baseline_there_is_no_speedup():
    with GpuEvaluator(SMALL, {**SETTINGS, "cache": False, "workers": 1, "baseline": "none"}) as evaluator:
        found = one(evaluator, KernelSource(text=SEED))
    assert found.status.passed, found.reason
    assert found.speedup is None


def test_without_a_gpu_the_error_says_how_to_go_on(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with (
        create({"type": "gpu", "cache": False}, TASK) as evaluator,
        pytest.raises(EnvironmentUnusableError, match="no usable NVIDIA GPU") as raised,
    ):
        list(evaluator.evaluate(jobs([KernelSource(text=SEED)])))
    assert "cpu" in raised.value.hint


def test_a_seed_baseline_needs_a_seed():
    with pytest.raises(TaskError, match="has no seed kernel to compare with"):
        create({"type": "gpu", "baseline": "seed"}, TASK.model_copy(update={"seed_source": None}))


def test_rings_shrink_before_arenas_become_few():
    cases = DeviceCases(SMALL, 0, "cpu", 1 << 30)
    ring, size, count = arena_plan(cases, 1 << 30, 4)
    assert (ring, count) == (8, 4)
    small_ring, small_size, small_count = arena_plan(cases, 5 * size, 4)
    assert small_count >= 2
    assert small_ring <= ring
    assert small_size <= size
    with pytest.raises(TaskError, match="do not fit on this GPU"):
        arena_plan(cases, size // 100, 4)


def test_a_ring_is_no_longer_than_the_cases_that_are_kept():
    each = DeviceCases(SMALL, 0, "cpu", 1 << 30).stand(SMALL.workloads[0]).case_bytes * len(SMALL.workloads)
    assert arena_plan(DeviceCases(SMALL, 0, "cpu", 3 * each), 1 << 30, 4)[0] == 3
    assert arena_plan(DeviceCases(SMALL, 0, "cpu", 0), 1 << 30, 4)[0] == 2


ON_THE_DEVICE = {
    "hangs": ("while True:\n                pass", EvalStatus.TIMEOUT),
    "leaves": ("raise SystemExit(0)", EvalStatus.EXITED),
    "asks for too much": ("torch.zeros(1 << 44)", EvalStatus.OUT_OF_MEMORY),
    "recurses": ("self.forward(x)", EvalStatus.RUNTIME_ERROR),
}


def test_kernels_that_break_their_worker_cost_the_good_ones_nothing():
    """Offline compilation sees tensors without contents, so each of these gets as far as the device's worker."""
    good = [KernelSource(text=SEED), changed("BLOCK = 64", "BLOCK = 32"), changed("num_warps=4", "num_warps=2")]
    bad = [
        changed(
            "        out = torch.empty(", f"        if x.shape[0] == 7:\n            {code}\n        out = torch.empty("
        )
        for code, _ in ON_THE_DEVICE.values()
    ]
    settings = {**SETTINGS, "cache": False, "baseline": "none", "timeout_s": 5.0}
    with GpuEvaluator(SMALL, settings) as evaluator:
        mixed = [source for pair in zip([*good, good[0]], bad, strict=True) for source in pair]
        found = [evaluation for _, evaluation in evaluator.evaluate(jobs(mixed))]
        folder = evaluator._folder
        assert folder is not None
        homes = [path for path in folder.iterdir() if path.name.startswith("worker-") and path.is_dir()]
        warm = evaluator._workers + 1
    assert [evaluation.status for evaluation in found[::2]] == [EvalStatus.PASSED] * 4
    assert [evaluation.status for evaluation in found[1::2]] == [status for _, status in ON_THE_DEVICE.values()]
    assert len(homes) <= warm
    assert not folder.exists()


def test_answers_kept_by_place_do_not_survive_new_contents_in_the_timed_ring(evaluator, monkeypatch):
    """It behaves while it is checked; once calls are many, it adds up one column of what it kept: the old answer."""
    monkeypatch.setattr(gpu_stages, "CHECK_ONE_IN", 1)
    text = REMEMBERS.text.replace("self.seen = {}", "self.kept = {}\n        self.calls = 0").replace(
        "        out = torch.empty(",
        "        self.calls += 1\n        key = self.calls % 8\n"
        "        if self.calls > MANY and key in self.kept:\n            x = self.kept[key].view(-1, 1)\n"
        "        out = torch.empty(",
    )
    text = text.replace("        return out", "        self.kept[key] = out\n        return out")
    found = one(evaluator, KernelSource(text=text.replace("BLOCK = 64\n", "BLOCK = 64\nMANY = 12\n")))
    assert found.status is EvalStatus.REPLAY, found.reason


RECALLING = """import torch
import triton
import triton.language as tl

BLOCK = 64


@triton.jit
def sum_kernel(x_ptr, out_ptr, old_ptr, mark_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    if tl.load(mark_ptr) == tl.load(x_ptr):
        tl.store(out_ptr + row, tl.load(old_ptr + row))
    else:
        total = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            total += tl.sum(tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0), axis=0)
        tl.store(out_ptr + row, total)
        tl.store(old_ptr + row, total)


@triton.jit
def note_kernel(x_ptr, mark_ptr):
    tl.store(mark_ptr, tl.load(x_ptr))


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.old = {}

    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        if x.shape not in self.old:
            self.old[x.shape] = (torch.zeros_like(out), torch.zeros(1, device=x.device))
        old, mark = self.old[x.shape]
        sum_kernel[(x.shape[0],)](x, out, old, mark, x.shape[1], BLOCK=BLOCK)
        note_kernel[(1,)](x, mark)
        return out
"""


def test_an_answer_found_in_kept_memory_by_the_contents_of_the_inputs_is_a_replay(evaluator, monkeypatch):
    monkeypatch.setattr(gpu_recall, "LEAST_BYTES", 8)
    found = one(evaluator, KernelSource(text=RECALLING))
    assert found.status is EvalStatus.REPLAY, found.reason
    assert "memory that earlier calls left behind" in found.reason


def test_a_remembered_answer_is_found_where_few_outputs_may_be_kept(evaluator, monkeypatch):
    monkeypatch.setattr(gpu_recall, "LEAST_BYTES", 8)
    one(evaluator, KernelSource(text=SEED))  # so that there is a setting
    monkeypatch.setattr(evaluator._setting, "keep_bytes", 1)
    found = one(evaluator, KernelSource(text=f"{RECALLING}# few\n"))
    assert found.status is EvalStatus.REPLAY, found.reason
    assert "memory that earlier calls left behind" in found.reason


def test_a_workspace_that_is_kept_and_written_anew_is_nobodys_business(evaluator, monkeypatch):
    monkeypatch.setattr(gpu_recall, "LEAST_BYTES", 8)
    found = one(evaluator, KernelSource(text=RECALLING.replace("tl.load(mark_ptr) == tl.load(x_ptr)", "n_cols < 0")))
    assert found.status.passed, found.reason


def test_a_copy_of_what_torch_computed_is_a_decoy():
    free = SMALL.model_copy(update={"op_policy": "free"})
    source = changed(
        "        sum_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=BLOCK, num_warps=4)\n",
        "        sums = x.sum(dim=1)\n        sum_kernel[(x.shape[0],)](sums, out, 1, BLOCK=BLOCK, num_warps=4)\n",
    )
    with GpuEvaluator(free, {**SETTINGS, "cache": False, "workers": 1, "baseline": "none"}) as evaluator:
        found = one(evaluator, source)
    assert found.status is EvalStatus.DECOY, found.reason
    assert "torch has computed the output" in found.reason


def test_right_values_in_another_layout_have_the_wrong_shape(evaluator):
    source = changed(
        "        out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)\n",
        "        out = torch.empty((x.shape[0], 2), device=x.device, dtype=x.dtype)[:, 0]\n",
    )
    source = KernelSource(text=source.text.replace("out_ptr + row", "out_ptr + 2 * row"))
    found = one(evaluator, source)
    assert found.status is EvalStatus.WRONG_SHAPE, found.reason
    assert "strides (2,)" in found.reason


def test_a_candidate_that_runs_the_same_costs_no_gpu_time(evaluator, monkeypatch):
    first = changed("num_warps=4", "num_warps=1")
    twin = KernelSource(text=first.text.replace("cols", "columns"))
    assert one(evaluator, first).status.passed
    monkeypatch.setattr(evaluator._pool, "take", lambda: pytest.fail("a worker was taken"))
    found = one(evaluator, twin)
    assert found.status is EvalStatus.DUPLICATE, found.reason
    assert first.sha[:12] in found.reason
    assert [stage.name for stage in found.stages] == ["static", "compile"]


def test_duplicates_are_judged_where_the_settings_say_so():
    twin = KernelSource(text=SEED.replace("cols", "columns"))
    settings = {**SETTINGS, "cache": False, "workers": 1, "baseline": "none", "duplicates": "judge"}
    with GpuEvaluator(SMALL, settings) as evaluator:
        found = [evaluation for _, evaluation in evaluator.evaluate(jobs([KernelSource(text=SEED), twin]))]
    assert [evaluation.status for evaluation in found] == [EvalStatus.PASSED] * 2


def test_timing_again_is_thorough_and_answered_neither_from_the_cache_nor_as_a_duplicate(tmp_path):
    twin = KernelSource(text=SEED.replace("cols", "columns"))
    sources = [KernelSource(text=SEED), twin]
    settings = {**SETTINGS, "cache": True, "cache_dir": str(tmp_path), "max_samples": 40, "workers": 1}
    with GpuEvaluator(SMALL, settings) as evaluator:
        first = [found for _, found in evaluator.evaluate(jobs(sources))]
        again = [found for _, found in evaluator.retime(jobs(sources))]
        then = [found for _, found in evaluator.evaluate(jobs(sources))]
    assert [found.status for found in first] == [EvalStatus.PASSED, EvalStatus.DUPLICATE]
    assert [found.status for found in again] == [EvalStatus.PASSED] * 2
    assert not any(found.cached for found in again)
    assert [found.timings["tall"].samples for found in (first[0], again[0])] == [30, 40]
    assert then[0].cached
    assert then[0].timings == first[0].timings


def test_an_autotuned_kernel_passes_without_a_gpu_to_tune_on(evaluator):
    configs = "configs=[triton.Config({'BLOCK': 64}), triton.Config({'BLOCK': 32}, num_warps=2)], key=['n_cols']"
    text = SEED.replace("@triton.jit\n", f"@triton.autotune({configs})\n@triton.jit\n")
    found = one(evaluator, KernelSource(text=text.replace(", BLOCK=BLOCK, num_warps=4)", ")")))
    assert found.status.passed, found.reason


def test_a_kernel_that_is_right_only_while_its_memory_is_watched_tampers(evaluator):
    text = SEED.replace("n_cols, BLOCK: tl", "n_cols, times, BLOCK: tl").replace("row, total)", "row, total * times)")
    text = text.replace("x, out, x.shape[1], BLOCK", "x, out, x.shape[1], 1.0 if out.storage_offset() else 2.0, BLOCK")
    found = one(evaluator, KernelSource(text=text))
    assert found.status is EvalStatus.HARNESS_TAMPER, found.reason
    assert "right only while" in found.reason


def test_candidates_that_need_more_memory_are_judged_fewer_at_once():
    cases = DeviceCases(SMALL, 0, "cpu", 1 << 30)
    assert candidates_plan(cases, 90 * LEAST_BYTES, 8) == (8, 10 * LEAST_BYTES)
    count, own = candidates_plan(cases, 4 * LEAST_BYTES, 8)
    assert count == 2
    assert own > LEAST_BYTES
    assert candidates_plan(cases, 0, 8)[0] == 1
