"""The ray backend: who judges what, and what becomes of jobs whose actor or node is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("ray")

import ray
from ray.exceptions import RayActorError

from evaluator.backends import create, ray_actor
from evaluator.backends import ray as backend
from evaluator.backends.ray import RayEvaluator
from evaluator.backends.ray_actor import Register, SharedDuplicates
from evaluator.backends.ray_cluster import Place, connect, one_model, places
from evaluator.backends.ray_slots import LOSSES, Slots
from evaluator.errors import EnvironmentUnusableError, TaskError, UsageError
from evaluator.testing import TASK, WRONG, jobs
from evaluator.types import EvalStatus
from tests.evaluator.ray_fakes import BREAKS, KILLS, Scripted, folder_of_ray, numbered, small_ray

SETTINGS = {"type": "cpu", "cache": False}
ONE = {**SETTINGS, "workers": 1}


@pytest.fixture(scope="module")
def cluster():
    with small_ray():
        yield


@pytest.fixture
def judge(cluster):
    with RayEvaluator(TASK, SETTINGS, {}, Scripted) as evaluator:
        yield evaluator


def verdicts(evaluator, sources):
    return [evaluation for _, evaluation in evaluator.evaluate(jobs(sources))]


def test_two_cpus_judge_everything_once_and_in_order(judge, tmp_path):
    first, *others = numbered(6, f"# noted in {tmp_path / 'notes'}")
    wrong, status = WRONG["an import of ctypes"]
    sources = [first, wrong, *others, first]
    found = verdicts(judge, sources)
    assert [evaluation.source_sha for evaluation in found] == [source.sha for source in sources]
    assert [evaluation.status for evaluation in found] == [EvalStatus.PASSED, status, *[EvalStatus.PASSED] * 6]
    judging = (tmp_path / "notes").read_text().split()
    assert len(judging) == 6
    assert len(set(judging)) == 2
    assert str(os.getpid()) not in judging


def test_the_job_of_a_killed_actor_is_lost_and_not_tried_again(judge, tmp_path):
    (deadly,) = numbered(1, f"# noted in {tmp_path / 'notes'}", KILLS)
    before = verdicts(judge, numbered(2))
    lost, *after = verdicts(judge, [deadly, *numbered(8)])
    assert lost.status is EvalStatus.WORKER_LOST
    assert lost.reason.startswith("the actor on ")
    assert [evaluation.status for evaluation in before + after] == [EvalStatus.PASSED] * 10
    (killed,) = (tmp_path / "notes").read_text().split()
    assert killed not in {evaluation.reason for evaluation in after}


def test_another_actor_takes_the_place_of_one_that_is_lost_or_whose_judge_fails(cluster):
    sources = [*numbered(1), *numbered(1, KILLS), *numbered(1, "# 2"), *numbered(1, BREAKS), *numbered(1, "# 4")]
    with RayEvaluator(TASK, ONE, {}, Scripted) as evaluator:
        found = verdicts(evaluator, sources)
    passed, lost, broken = EvalStatus.PASSED, EvalStatus.WORKER_LOST, EvalStatus.HARNESS_ERROR
    assert [one.status for one in found] == [passed, lost, passed, broken, passed]
    assert "the device is gone" in found[3].reason
    assert len({found[place].reason for place in (0, 2, 4)}) == 3


def test_a_place_that_keeps_losing_its_actors_ends_the_search_but_no_verdict(cluster):
    found = []

    def judge_all(evaluator):
        for _, evaluation in evaluator.evaluate(jobs([*numbered(1), *numbered(LOSSES + 2, KILLS)])):
            found.append(evaluation.status)

    with (
        RayEvaluator(TASK, ONE, {}, Scripted) as evaluator,
        pytest.raises(EnvironmentUnusableError, match="nothing left") as raised,
    ):
        judge_all(evaluator)
    assert "kernevo resume" in raised.value.hint
    assert found == [EvalStatus.PASSED, *[EvalStatus.WORKER_LOST] * LOSSES]


def test_the_tasks_fault_is_raised_with_its_fix_before_any_candidate_runs(cluster):
    task = TASK.model_copy(update={"description": "tells nothing"})
    with RayEvaluator(task, ONE, {}, Scripted) as evaluator, pytest.raises(TaskError, match="constant") as raised:
        verdicts(evaluator, numbered(2))
    assert raised.value.hint == "vary the inputs"


def test_a_node_with_other_versions_is_refused(cluster, monkeypatch):
    monkeypatch.setattr(backend, "installed", lambda: {**ray_actor.installed(), "triton": "9.9"})
    with RayEvaluator(TASK, ONE, {}, Scripted) as evaluator, pytest.raises(EnvironmentUnusableError) as raised:
        verdicts(evaluator, numbered(1))
    assert "this machine has triton 9.9" in raised.value.message


def test_a_cluster_without_gpus_says_so(cluster):
    with (
        create({"type": "gpu", "cache": False}, TASK, {"type": "ray"}) as evaluator,
        pytest.raises(EnvironmentUnusableError, match="none of the 1 nodes of the Ray cluster has a GPU"),
    ):
        verdicts(evaluator, numbered(1))


def test_closing_ends_the_actors_and_leaves_a_ray_of_others_alone(cluster):
    evaluator = RayEvaluator(TASK, SETTINGS, {}, Scripted)
    pids = {int(evaluation.reason) for evaluation in verdicts(evaluator, numbered(6))}
    evaluator.close()
    evaluator.close()
    assert ray.is_initialized()
    with pytest.raises(RuntimeError, match="closed"):
        verdicts(evaluator, numbered(1))
    with RayEvaluator(TASK, SETTINGS, {"wait_s": 60.0}, Scripted) as other:  # both CPUs are free again
        assert pids.isdisjoint(int(evaluation.reason) for evaluation in verdicts(other, numbered(6)))


def test_actors_know_of_each_others_candidates_and_wait_for_no_lost_one(cluster):
    register = ray.remote(num_cpus=0, max_concurrency=4)(Register).remote(TASK)
    one, other = SharedDuplicates(TASK, register), SharedDuplicates(TASK, register)
    assert one.find("add", "a") is None
    waiting = register.find.remote("add", "b")
    ray.get(register.forget.remote("a"))
    assert ray.get(waiting, timeout=60) is None
    other.leave("add", "b", 0.5)
    assert one.find("add", "c") == ("b", 0.5)
    ray.kill(register)
    with suppress(RayActorError):
        while True:  # it dies in its own time
            ray.get(register.find.remote("other", "b"))
    assert one.find("add", "c") is None


def test_a_node_that_is_lost_takes_only_its_own_jobs_with_it(monkeypatch):
    ray.shutdown()
    from ray.cluster_utils import Cluster

    with folder_of_ray() as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        (Path(folder) / "ray").mkdir()
        quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
        head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 << 20, "_system_config": quick}
        made = Cluster(initialize_head=True, head_node_args=head)
        try:
            second = made.add_node(num_cpus=1, object_store_memory=80 << 20)
            ray.init(address=made.address, log_to_driver=False)
            found = []
            with RayEvaluator(TASK, SETTINGS, {}, Scripted) as evaluator:
                assert len({place.node for place in places("CPU", None)}) == 2
                assert all(one.status.passed for one in verdicts(evaluator, numbered(4)))
                made.remove_node(second, allow_graceful=False)
                batch = 0
                while all(one.status.passed for one in found):  # the node's processes live on for a moment
                    batch += 1
                    found += verdicts(evaluator, numbered(4, f"# batch {batch}"))
                after = verdicts(evaluator, numbered(4, "# after"))
        finally:
            ray.shutdown()
            made.shutdown()
    assert [one.status for one in found if not one.status.passed] == [EvalStatus.WORKER_LOST]
    assert all(one.status.passed for one in after)
    assert len({one.reason for one in after}) == 1


def test_an_address_without_a_cluster_is_named():
    ray.shutdown()
    with pytest.raises(EnvironmentUnusableError, match=r"no Ray cluster at 127\.0\.0\.1:1") as raised:
        connect("127.0.0.1:1")
    assert "ray start" in raised.value.hint


def test_a_missing_package_is_said_in_one_line(monkeypatch):
    monkeypatch.setattr("evaluator.backends.ray_cluster.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="needs the package ray") as raised:
        create(SETTINGS, TASK, {"type": "ray"})
    assert "pip install 'kernevo[ray]'" in raised.value.hint


def test_importing_the_backend_loads_neither_ray_nor_torch():
    script = "import sys, evaluator.backends.ray, evo.campaign; print('ray' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_a_run_uses_one_gpu_model():
    assert one_model(["NVIDIA H200", "NVIDIA H200"], None) == "NVIDIA H200"
    assert one_model(["NVIDIA H200", "NVIDIA A100"], "h200") == "NVIDIA H200"
    assert one_model(["NVIDIA H100 NVL", "NVIDIA H100"], "NVIDIA H100") == "NVIDIA H100"


@pytest.mark.parametrize(("wanted", "said"), [(None, "several models"), ("H", "means 2"), ("L40S", "means 0")])
def test_several_gpu_models_are_refused_by_name(wanted, said):
    with pytest.raises(EnvironmentUnusableError, match=said) as raised:
        one_model(["NVIDIA H200", "NVIDIA H100"], wanted)
    assert "NVIDIA H100, NVIDIA H200" in raised.value.message
    assert "backend.gpu" in raised.value.hint


def slots(room: int = 2, start=lambda place: "new") -> Slots:
    return Slots([(Place("n1", "one"), "a"), (Place("n2", "two"), "b")], room, start, lambda actor: None)


def test_at_most_two_jobs_are_with_one_actor():
    made = slots()
    taken = [made.take() for _ in range(4)]
    assert sorted(one.actor for one in taken) == ["a", "a", "b", "b"]
    got = []
    waiting = threading.Thread(target=lambda: got.append(made.take().actor))
    waiting.start()
    made.give_back(taken[1])
    waiting.join(60)
    assert got == [taken[1].actor]


def test_two_jobs_of_one_lost_actor_make_one_new_actor():
    started = []
    made = slots(start=lambda place: started.append(place) or f"new {len(started)}")
    taken = [made.take() for _ in range(4)]
    for one in taken[0], taken[2]:
        assert one.actor == "a"
        made.lose(one)
    assert sorted(made.take().actor for _ in range(2)) == ["new 1", "new 1"]
    assert [place.host for place in started] == ["one"]


def test_a_place_without_a_new_actor_leaves_the_work_to_the_others():
    def gone(place):
        raise RuntimeError("the node is gone")

    made = slots(room=1, start=gone)
    one, other = made.take(), made.take()
    made.lose(one)
    made.give_back(other)
    assert made.take().actor == other.actor
    made.lose(other)
    with pytest.raises(EnvironmentUnusableError, match="nothing left"):
        made.take()
