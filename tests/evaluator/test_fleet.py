"""Several GPUs behind one evaluator: the conformance suite on two interpreter devices, and who judges what."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("torch")

from evaluator.backends import create
from evaluator.backends.fleet import GpuFleet, find_devices
from evaluator.backends.gpu import GpuEvaluator, default_workers
from evaluator.errors import EnvironmentUnusableError, TaskError
from evaluator.testing import TASK, EvaluatorTestCase, jobs
from evaluator.types import EvalStatus, Evaluation, KernelSource, Timing
from tests.evaluator.test_gpu_backend import SETTINGS, SMALL

TWO = {**SETTINGS, "workers": 1, "device": [0, 1], "cache": False}


@pytest.fixture(scope="module")
def on_two():
    with GpuFleet(SMALL, TWO) as evaluator:
        yield evaluator


class TestGpuFleet(EvaluatorTestCase):
    task = SMALL

    @pytest.fixture
    def evaluator(self, on_two):
        return on_two

    @pytest.fixture
    def make(self):
        return lambda task: GpuFleet(task, TWO)

    def test_the_seed_is_as_fast_as_itself(self, evaluator):
        """Without a GPU there is no clock worth a tolerance."""
        ((_, found),) = evaluator.evaluate(jobs([KernelSource(text=SMALL.seed_source or "")]))
        assert {timing.baseline for timing in found.timings.values()} == {"seed"}


def numbered(count: int) -> list[KernelSource]:
    return [KernelSource(text=f"{SMALL.seed_source}\n# {index}\n") for index in range(count)]


class Script:
    """Stands in for the judging of every GPU: notes who judged what, and keeps the kernels in `held` from ending."""

    def __init__(self):
        self.judged: list[tuple[int, str]] = []
        self.prepared: list[int] = []
        self.held: dict[str, threading.Event] = {}
        self.changed = threading.Condition()

    def prepare(self, evaluator: GpuEvaluator) -> None:
        self.prepared.append(evaluator._settings["device"])

    def judge(self, evaluator: GpuEvaluator, source: KernelSource) -> Evaluation:
        with self.changed:
            self.judged.append((evaluator._settings["device"], source.sha))
            self.changed.notify_all()
        if source.sha in self.held:
            assert self.held[source.sha].wait(60)
        timings = {"tall": Timing(kind="measured", median_ms=1.0)}
        passed = EvalStatus.PASSED
        return Evaluation(source_sha=source.sha, task=SMALL.name, evaluator="gpu", status=passed, timings=timings)

    def hold(self, source: KernelSource) -> threading.Event:
        self.held[source.sha] = threading.Event()
        return self.held[source.sha]

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.judged) >= count, 60)


@pytest.fixture
def script(monkeypatch):
    made = Script()

    def prepare(self):
        made.prepare(self)

    def judge(self, source):
        return made.judge(self, source)

    monkeypatch.setattr(GpuEvaluator, "_prepare", prepare)
    monkeypatch.setattr(GpuEvaluator, "_judge", judge)
    return made


def test_a_candidate_goes_to_the_gpu_that_is_free_first(script):
    slow, *quick = numbered(4)
    end = script.hold(slow)

    def asked():
        first, *rest = jobs([slow, *quick])
        yield first
        script.wait_for(1)
        yield from rest
        end.set()

    with GpuFleet(SMALL, TWO) as evaluator:
        found = list(evaluator.evaluate(asked()))
    assert script.judged[0] == (0, slow.sha)
    assert [device for device, sha in script.judged if sha != slow.sha] == [1, 1, 1]
    assert [evaluation.source_sha for _, evaluation in found] == [source.sha for source in (slow, *quick)]


def test_equal_sources_are_judged_once_whatever_gpu_is_free(script):
    first, other = numbered(2)
    with GpuFleet(SMALL, TWO) as evaluator:
        found = [evaluation for _, evaluation in evaluator.evaluate(jobs([first, first, other, first]))]
    assert sorted(sha for _, sha in script.judged) == sorted([first.sha, other.sha])
    assert [evaluation.source_sha for evaluation in found] == [first.sha, first.sha, other.sha, first.sha]


def test_jobs_are_taken_as_gpus_become_free(script):
    sources = numbered(6)
    ends = [script.hold(source) for source in sources]
    taken = []

    def asked():
        for job in jobs(sources):
            taken.append(job)
            yield job

    with GpuFleet(SMALL, {**TWO, "workers": 2}) as evaluator:
        asking = threading.Thread(target=lambda: list(evaluator.evaluate(asked())))
        asking.start()
        script.wait_for(4)
        assert len(taken) == 4
        for end in ends:
            end.set()
        asking.join(60)
    assert len(taken) == 6


def test_every_gpu_is_prepared_once_and_before_any_candidate_runs(script, monkeypatch):
    with GpuFleet(SMALL, {**TWO, "device": [0, 2, 1]}) as evaluator:
        assert script.prepared == []
        list(evaluator.evaluate(jobs(numbered(3))))
        list(evaluator.evaluate(jobs(numbered(1))))
    assert sorted(script.prepared) == [0, 1, 2]

    def fails(evaluator):
        if evaluator._settings["device"] == 1:
            raise TaskError("it does not fit on this GPU")

    script.judged.clear()
    monkeypatch.setattr(GpuEvaluator, "_prepare", fails)
    with GpuFleet(SMALL, TWO) as evaluator, pytest.raises(TaskError, match="does not fit"):
        list(evaluator.evaluate(jobs(numbered(2))))
    assert script.judged == []


def test_a_verdict_kept_by_one_gpu_serves_all_of_them(script, tmp_path):
    kept = {**TWO, "cache": True, "cache_dir": str(tmp_path)}
    first, second = numbered(2)
    end = script.hold(first)
    with GpuFleet(SMALL, kept) as evaluator:

        def asked():
            one, other = jobs([first, second])
            yield one
            script.wait_for(1)
            yield other
            end.set()

        list(evaluator.evaluate(asked()))
    assert {device for device, _ in script.judged} == {0, 1}
    with GpuFleet(SMALL, kept) as evaluator:
        again = [evaluation for _, evaluation in evaluator.evaluate(jobs([second, first]))]
    assert [evaluation.cached for evaluation in again] == [True, True]
    assert len(script.judged) == 2


def test_gpus_know_of_each_others_candidates(script):
    with GpuFleet(SMALL, TWO) as evaluator:
        list(evaluator.evaluate([]))
        assert len({id(one._duplicates) for one in evaluator._evaluators}) == 1


def test_all_means_what_is_visible_and_is_asked_for_late(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: pytest.fail("counted too early"))
    with create({"type": "gpu", "cache": False}, TASK):
        pass
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert find_devices({"device": "all"}) == [0, 1, 2]
    assert find_devices({"device": "all", "platform": "interpreter"}) == [0]
    assert find_devices({"device": [2, 0]}) == [2, 0]


def test_without_a_gpu_the_first_candidate_says_so(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with create({"type": "gpu", "device": "all", "cache": False}, SMALL) as evaluator:
        assert list(evaluator.evaluate([])) == []
        with pytest.raises(EnvironmentUnusableError, match="no usable NVIDIA GPU") as raised:
            list(evaluator.evaluate(jobs(numbered(1))))
    assert "cpu" in raised.value.hint
    assert raised.value.exit_code == 4


@pytest.mark.parametrize(
    ("device", "kind"), [(0, GpuEvaluator), ([1], GpuEvaluator), ([0, 1], GpuFleet), ("all", GpuFleet)]
)
def test_one_gpu_needs_no_fleet(device, kind):
    with create({**TWO, "type": "gpu", "device": device}, SMALL) as evaluator:
        assert type(evaluator) is kind


def test_gpus_share_the_cores(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert [default_workers(gpus) for gpus in (1, 2, 8, 64)] == [8, 8, 4, 1]


def test_a_closed_fleet_judges_nothing_more():
    evaluator = GpuFleet(SMALL, TWO)
    evaluator.close()
    evaluator.close()
    with pytest.raises(RuntimeError, match="closed"):
        next(iter(evaluator.evaluate(jobs(numbered(1)))))


def test_two_settings_that_do_not_fit_are_refused_at_once():
    with pytest.raises(TaskError, match="has no seed kernel to compare with"):
        create({"type": "gpu", "device": "all", "baseline": "seed"}, SMALL.model_copy(update={"seed_source": None}))


@pytest.mark.gpu
def test_all_visible_gpus_judge_the_seed():
    with create({"type": "gpu", "baseline": "seed", "timing": "screen", "cache": False}, TASK) as evaluator:
        found = [evaluation for _, evaluation in evaluator.evaluate(jobs(numbered(3)[:1]))]
    assert [evaluation.status for evaluation in found] == [EvalStatus.PASSED]
