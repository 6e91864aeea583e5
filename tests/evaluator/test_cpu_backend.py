"""The whole CPU cascade: the conformance suite, and what is particular to this backend."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import wait as real_wait
from pathlib import Path

import pytest

from evaluator.backends import create, local
from evaluator.backends.cpu import CpuEvaluator
from evaluator.errors import TaskError, UsageError
from evaluator.testing import REFERENCE, RIGHT, SEED, TASK, WRONG, EvaluatorTestCase, changed, jobs
from evaluator.types import EvalStatus, Evaluation, EvaluationJob, KernelSource


def settings(**more):
    return {"cache": False, "timeout_s": 10.0, "workers": 2, **more}


def one(evaluator, source):
    ((_, found),) = evaluator.evaluate(jobs([source]))
    return found


@pytest.fixture(scope="module")
def evaluator():
    with CpuEvaluator(TASK, settings(timeout_s=6.0)) as evaluator:
        yield evaluator


class TestCpuEvaluator(EvaluatorTestCase):
    @pytest.fixture
    def make(self):
        return lambda task: CpuEvaluator(task, settings())

    @pytest.fixture
    def evaluator(self, evaluator):
        return evaluator


def test_latencies_are_modelled_and_never_below_half_the_speed_of_light(evaluator):
    found = one(evaluator, RIGHT["the seed"])
    assert found.kind == "modelled"
    assert found.profile.kind == "modelled"
    for timing in found.timings.values():
        assert timing.median_ms > 0.5 * timing.speed_of_light_ms > 0
        assert timing.baseline_ms == pytest.approx(timing.median_ms)


def test_a_pass_is_explained_by_its_profile(evaluator):
    found = one(evaluator, RIGHT["another block"])
    assert found.profile.bottleneck in {
        launch.bound for launches in found.profile.launches.values() for launch in launches
    }
    assert "registers" in found.explain
    assert "speed of light" in found.explain
    assert found.profile.resources[0].registers > 0
    assert [stage.name for stage in found.stages] == ["static", "compile", "smoke", "model"]


def test_a_wrong_value_is_located_in_the_explanation(evaluator):
    found = one(evaluator, WRONG["a wrong value"][0])
    assert "got" in found.explain
    assert "expected" in found.explain
    assert found.checks_passed < found.checks_total


def test_an_exception_cites_the_candidates_line(evaluator):
    assert "candidate.py:23" in one(evaluator, WRONG["an exception"][0]).reason


GREEDY = """import torch
import triton
import triton.language as tl


@triton.jit
def gram_kernel(x_ptr, out_ptr, n_cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.arange(0, ROWS)
    total = tl.zeros((ROWS, ROWS), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        half = tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :]).to(tl.float16)
        total += tl.dot(half, tl.trans(half))
    tl.store(out_ptr + rows[:, None] * ROWS + rows[None, :], total)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty(16, 16, device=x.device)
        gram_kernel[(1,)](x, out, x.shape[1], ROWS=16, BLOCK=128, num_warps=4, num_stages=31)
        return out
"""


def test_shared_memory_beyond_the_target_is_a_resource_limit(evaluator):
    found = one(evaluator, KernelSource(text=GREEDY))
    assert found.status is EvalStatus.RESOURCE_LIMIT, found.reason
    assert "245760 bytes of shared memory" in found.reason
    assert "h200" in found.reason


def test_tf32_in_the_code_of_a_float32_task_is_imprecise_though_the_interpreter_cannot_see_it(evaluator):
    halves = "half = tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :]).to(tl.float16)"
    assert halves in GREEDY
    text = GREEDY.replace(".to(tl.float16)", "").replace("num_stages=31", "num_stages=2")
    found = one(
        evaluator, KernelSource(text=text.replace("tl.trans(half))", "tl.trans(half), input_precision='tf32')"))
    )
    assert found.status in (EvalStatus.PRECISION, EvalStatus.REJECTED_STATIC), found.reason
    assert "tf32" in found.reason.lower()
    default = one(evaluator, KernelSource(text=text))
    assert default.status in (EvalStatus.PRECISION, EvalStatus.REJECTED_STATIC), default.reason


def test_what_the_interpreter_cannot_run_is_not_called_wrong_and_does_not_pass(evaluator):
    asm = 'tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)'
    found = one(evaluator, changed("total += tl.sum(x, axis=0)", f"total += tl.sum({asm}, axis=0)"))
    assert found.status is EvalStatus.RUNTIME_ERROR
    assert "CPU evaluator cannot judge" in found.reason


def test_float32_sums_done_in_float16_are_imprecise(evaluator):
    found = one(evaluator, changed("tl.sum(x, axis=0)", "tl.sum(x.to(tl.float16).to(tl.float32), axis=0)"))
    assert found.status in (EvalStatus.PRECISION, EvalStatus.WRONG_VALUE)


def test_a_harness_that_breaks_blames_itself(evaluator, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("oh")

    one(evaluator, RIGHT["the seed"])
    monkeypatch.setattr(evaluator._stages.judge, "compare", broken)
    found = one(evaluator, RIGHT["more warps"])
    assert found.status is EvalStatus.HARNESS_ERROR
    assert "smoke" in found.reason


def test_bad_kernels_in_a_row_leave_no_processes_and_good_ones_between_pass(evaluator):
    bad = [source for name, (source, _) in WRONG.items() if name not in ("an endless loop",)]
    mixed = [
        source
        for pair in zip(bad, [RIGHT["the seed"], RIGHT["more warps"]] * len(bad), strict=False)
        for source in pair
    ]
    before = set(children_of_zygotes(evaluator))
    answers = [found for _, found in evaluator.evaluate(jobs(mixed))]
    assert all(found.status.passed for found in answers[1::2])
    assert not any(found.status.passed for found in answers[0::2])
    assert set(children_of_zygotes(evaluator)) == before == set()
    assert [path.name for path in evaluator._folder.iterdir() if path.name.startswith("job")] == []


def children_of_zygotes(evaluator):
    for host in evaluator._hosts:
        if host._process is not None:
            pid = host._process.pid
            yield from Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_closing_while_jobs_run_ends_every_process_and_removes_every_file():
    with CpuEvaluator(TASK, settings(timeout_s=60.0)) as evaluator:
        assert one(evaluator, RIGHT["the seed"]).status.passed
        pids = [host._process.pid for host in evaluator._hosts]
        folder = evaluator._folder
        results = []
        endless = jobs([WRONG["an endless loop"][0]])
        thread = threading.Thread(target=lambda: results.extend(evaluator.evaluate(endless)))
        thread.start()
        while not list(children_of_zygotes(evaluator)):
            thread.join(0.05)
        evaluator.close()
        thread.join(30)
        assert not thread.is_alive()
        assert results[0][1].status.blames_harness
        assert not folder.exists()
        assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_a_controller_that_is_killed_leaves_no_workers(tmp_path):
    script = (
        "import os, signal\nfrom evaluator.backends.cpu import CpuEvaluator\nfrom evaluator.testing import *\n"
        "evaluator = CpuEvaluator(TASK, {'cache': False})\n"
        "list(evaluator.evaluate(jobs([RIGHT['the seed']])))\n"
        "print(*[host._process.pid for host in evaluator._hosts], evaluator._folder, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=False,
    )
    *pids, _ = done.stdout.split()
    assert len(pids) == 2, done.stderr
    for pid in pids:
        wait_until_gone(pid)


def wait_until_gone(pid):
    """Its control socket is closed, so it ends; poll its existence rather than guess how long that takes."""
    deadline = threading.Event()
    for _ in range(600):
        try:
            if " Z " in Path(f"/proc/{pid}/stat").read_text():
                return
        except FileNotFoundError:
            return
        deadline.wait(0.05)
    raise AssertionError(f"process {pid} is still there")


def test_a_cached_verdict_starts_no_worker(tmp_path):
    with CpuEvaluator(TASK, settings(cache=True, cache_dir=str(tmp_path))) as first:
        fresh = one(first, RIGHT["the seed"])
        wrong = one(first, WRONG["a wrong value"][0])
    with CpuEvaluator(TASK, settings(cache=True, cache_dir=str(tmp_path))) as second:
        cached = one(second, RIGHT["the seed"])
        assert second._hosts == []
        assert cached == fresh.model_copy(update={"cached": True})
        assert one(second, WRONG["a wrong value"][0]) == wrong.model_copy(update={"cached": True})


def test_the_same_source_twice_in_one_batch_is_judged_once(evaluator):
    source = changed("BLOCK = 64", "BLOCK = 32")
    (_, first), (_, second) = evaluator.evaluate(jobs([source, source]))
    assert first is second


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (TASK.model_copy(update={"seed_source": SEED.replace("total = 0.0", "total = 1.0")}), "wrong_value"),
        (
            TASK.model_copy(update={"reference_source": REFERENCE.replace("x.sum(dim=1)", "x.sum(dim=1) * 0")}),
            "filled with 0",
        ),
        (TASK.model_copy(update={"reference_source": REFERENCE.replace("x.sum(dim=1)", "x.nope()")}), "AttributeError"),
    ],
)
def test_a_task_at_fault_is_reported_before_any_verdict(task, message):
    with CpuEvaluator(task, settings()) as evaluator, pytest.raises(TaskError, match=message):
        list(evaluator.evaluate(jobs([RIGHT["the seed"]])))


def test_a_task_without_a_seed_has_no_baseline_but_a_speed_of_light():
    with CpuEvaluator(TASK.model_copy(update={"seed_source": None}), settings()) as evaluator:
        found = one(evaluator, RIGHT["the seed"])
    assert found.status.passed
    assert found.speedup is None
    assert all(timing.speed_of_light_ms for timing in found.timings.values())


def test_create_makes_the_backend_that_the_config_names():
    with create({"type": "cpu", "cache": False}, TASK) as evaluator:
        assert isinstance(evaluator, CpuEvaluator)


def test_an_unknown_type_lists_the_known_ones():
    with pytest.raises(UsageError, match="cup") as caught:
        create({"type": "cup"}, TASK)
    assert "cpu" in caught.value.hint


def test_an_unknown_target_is_a_usage_error():
    with pytest.raises(UsageError, match="h2oo"):
        create({"type": "cpu", "target": "h2oo"}, TASK)


def test_importing_the_backends_loads_no_torch():
    script = "import sys, evaluator.backends; print('torch' in sys.modules, 'triton' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_surrogates_and_null_bytes_in_a_source_are_verdicts(evaluator):
    for text in ("\ud800", "x = '\x00'\n", "", "\n" * 1000):
        found = one(evaluator, KernelSource(text=text))
        assert not found.status.passed
        assert not found.status.blames_harness, found.reason


KERNEL = SEED[SEED.index("@triton.jit") : SEED.index("class ModelNew")]
TWO_KERNELS = SEED.replace("class ModelNew", KERNEL.replace("sum_kernel", "other_kernel") + "class ModelNew")


def test_a_kernel_that_no_check_ran_is_suspicious(evaluator):
    text = TWO_KERNELS.replace(
        "        sum_kernel[", "        kernel = sum_kernel if x.shape[0] < 64 else other_kernel\n        kernel["
    )
    found = one(evaluator, KernelSource(text=text))
    assert found.status is EvalStatus.SUSPICIOUS, found.reason
    assert "other_kernel at tall, which no check shape launches" in found.reason


def test_a_kernel_that_some_check_ran_passes(evaluator):
    text = TWO_KERNELS.replace(
        "        sum_kernel[", "        kernel = sum_kernel if x.shape[1] < 131 else other_kernel\n        kernel["
    )
    found = one(evaluator, KernelSource(text=text))
    assert found.status.passed, found.reason


def test_waiting_for_a_free_worker_does_not_spin_on_what_is_done(monkeypatch):
    """A finished future in the set makes `wait` return at once, and the loop burn the core that workers need."""
    waited: list[int] = []
    release = threading.Event()

    def wait(futures, **options):
        waited.append(len(futures))
        release.set()
        return real_wait(futures, **options)

    def judge(source):
        assert source is sources[-1] or release.wait(60)  # the last one is not waited for in the loop
        release.clear()
        return Evaluation(source_sha=source.sha, task="t", evaluator="cpu", status=EvalStatus.WRONG_VALUE)

    monkeypatch.setattr(local, "wait", wait)
    evaluator = CpuEvaluator(TASK, settings(workers=1))
    monkeypatch.setattr(evaluator, "_prepare", lambda: None)
    monkeypatch.setattr(evaluator, "_judge", judge)
    sources = [KernelSource(text=SEED + f"# {index}\n") for index in range(5)]
    found = list(
        evaluator.evaluate(EvaluationJob(job_id=str(index), source=source) for index, source in enumerate(sources))
    )
    assert [job.source for job, _ in found] == sources
    assert set(waited) == {1}
