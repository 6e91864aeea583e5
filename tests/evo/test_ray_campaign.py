"""Campaigns on Ray end like those on one machine, whatever dies on the way."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("ray")

from evaluator.backends.local import LocalEvaluator
from evaluator.backends.ray import RayEvaluator
from evaluator.errors import UsageError
from evaluator.task import SHIPPED
from evaluator.types import EvalStatus
from evo.campaign import Campaign
from evo.run import Run
from tests.evaluator.ray_fakes import small_ray
from tests.evo import driver, fakes
from tests.evo.configs import load_mapping
from tests.evo.test_resume import state

MINIMAL = {"task": "softmax", "budget": {"evaluations": 3}, "backend": {"type": "ray"}}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with small_ray():
        yield


class Landscape(LocalEvaluator):
    """The fake judge in an actor, which the source that `kills` names takes down."""

    name = "cpu"
    revision = 1

    def __init__(self, task, settings, duplicates):
        super().__init__(task, settings, "h200")
        self._kills = settings["kills"]

    def _prepare(self):
        pass

    def _judge(self, source):
        if source.sha == self._kills:
            os.kill(os.getpid(), signal.SIGKILL)
        return fakes.FakeEvaluator()._judge(source)

    def _release(self):
        pass


def run_on_ray(path: Path, kills: str) -> Path:
    settings = {"type": "cpu", "cache": False, "static": False, "kills": kills}
    with RayEvaluator(fakes.task(), settings, {}, Landscape) as evaluator:
        campaign = Campaign(driver.config(), path, evaluator=evaluator, policy=fakes.FakePolicy())
        campaign.task = fakes.task()
        assert campaign.run().stopped == "evaluations"
    return path


def test_a_campaign_whose_actor_is_killed_judges_the_same_candidates(tmp_path):
    driver.campaign(tmp_path / "local", "start").run()
    local = Run.load(tmp_path / "local").records()
    last = [record for record in local if record.candidate.generation == local[-1].candidate.generation]
    assert len(last) > 2
    killing = last[1]
    path = run_on_ray(tmp_path / "ray", killing.candidate.source_sha)
    found, expected = state(path), state(tmp_path / "local")
    assert found["candidates"] == expected["candidates"]
    (lost,) = [record for record in Run.load(path).records() if record.evaluation.status is EvalStatus.WORKER_LOST]
    assert lost.id == killing.id
    same = [(one, other) for one, other in zip(found["verdicts"], expected["verdicts"], strict=True) if one != other]
    assert [one["source_sha"] for one, _ in same] == [killing.candidate.source_sha]


@pytest.fixture
def config(tmp_path):
    """A softmax task with one small workload, judged for real."""
    shutil.copytree(SHIPPED / "softmax", tmp_path / "task")
    path = tmp_path / "task" / "task.yaml"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "8192x4096" not in line and "1024x16384" not in line))
    return {
        "task": str(tmp_path / "task"),
        "seed": 3,
        "runs_dir": str(tmp_path),
        "budget": {"evaluations": 4},
        "search": {"offspring": 3},
        "evaluator": {"cache": False},
        "monitors": [],
    }


class KillsWorkers:
    """A monitor that kills the worker processes of every actor once two candidates are judged."""

    def __init__(self):
        self.killed: list[int] = []
        self._judged = 0

    def candidate(self, record):
        self._judged += 1
        if self._judged == 2:
            for process in Path("/proc").iterdir():
                if process.name.isdecimal() and _is_worker(process):
                    os.kill(int(process.name), signal.SIGKILL)
                    self.killed.append(int(process.name))

    def step(self, step):
        pass

    def policy(self, summary):
        pass

    def close(self):
        pass


def _is_worker(process: Path) -> bool:
    """Whether it is a worker below an actor of this test's Ray."""
    with suppress(OSError, IndexError):
        if b"evaluator.zygote" in (process / "cmdline").read_bytes():
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            return b"ray::Judge" in Path(f"/proc/{parent}/cmdline").read_bytes()
    return False


def test_a_campaign_whose_worker_processes_are_killed_ends_like_a_local_one(config, tmp_path, monkeypatch):
    Campaign(load_mapping({**config, "name": "local"})).run()
    killer = KillsWorkers()
    monkeypatch.setattr("evo.build.make_monitors", lambda *_: [killer])
    outcome = Campaign(load_mapping({**config, "name": "ray", "backend": {"type": "ray"}})).run()
    assert outcome.stopped == "evaluations"
    assert len(killer.killed) == 4  # two actors, each with a compiler and an interpreter
    assert state(tmp_path / "ray") == state(tmp_path / "local")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"backend": {"type": "ray", "gpu": "H200"}}, r"backend\.gpu: the cpu evaluator uses no GPU"),
        ({"evaluator": {"type": "gpu", "device": 1}}, r"evaluator\.device: Ray chooses the GPUs"),
        (
            {"evaluator": {"type": "gpu"}, "policy": {"type": "vllm", "model": "m"}},
            r"policy: vllm in this process would use a GPU",
        ),
        ({"backend": {"type": "rya"}}, r"did you mean `ray`"),
    ],
)
def test_settings_that_do_not_go_with_ray_are_refused(settings, said):
    with pytest.raises(UsageError, match=said):
        load_mapping({**MINIMAL, **settings})


def test_a_backend_without_a_type_is_local():
    assert load_mapping({**MINIMAL, "backend": {}}).backend.type == "local"


def test_a_config_says_that_ray_is_missing(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"(?s)ray needs the package ray.*pip install 'kernevo\[ray\]'"):
        load_mapping(MINIMAL)
