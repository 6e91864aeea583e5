"""Campaigns whose policy learns: when, with what, and what a resumed run makes of it."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from evaluator.errors import KernevoError, UsageError
from evo import journal
from evo.campaign import Campaign
from evo.config import CampaignConfig
from evo.events import LEARNED
from evo.learning import ADAPTERS
from evo.run import Run
from policy.training.manifest import Manifest, Probe
from policy.training.settings import TrainingSettings
from tests.evo import fakes

GENERATIONS = 7


class Learns(fakes.FakePolicy):
    """Notes which adapters it was given."""

    def __init__(self) -> None:
        self.adapters: list[tuple[str, str]] = []

    def use_adapter(self, name: str, path: str | None) -> None:
        self.adapters.append((name, str(path)))


class Trainer:
    """Stands for `kernevo finetune`: writes a manifest, or ends as it is told. `afters` are the probes' rewards."""

    def __init__(self, *afters: float, codes: tuple[int, ...] = ()) -> None:
        self.afters, self.codes = list(afters), list(codes)
        self.commands: list[list[str]] = []

    def __call__(self, command) -> int:
        self.commands.append(list(command))
        if self.codes and (code := self.codes.pop(0)) != 0:
            return code
        out = Path(self.option("--out"))
        out.mkdir(parents=True, exist_ok=True)
        after = self.afters.pop(0) if self.afters else 1.0
        settings = TrainingSettings(method="grpo", base="model")
        made = {
            "version": "0" * 16,
            "base": "model",
            "method": "grpo",
            "runs": (),
            "turns": 1,
            "rows": 1,
            "parents": (),
        }
        probe = Probe(before=0.5, after=after, prompts=1, answers=2)
        Manifest(**made, settings=settings, seeds={}, metrics={}, libraries={}, probe=probe).write(out)
        return 0

    def option(self, name: str, training: int = -1) -> str | None:
        command = self.commands[training]
        return command[command.index(name) + 1] if name in command else None


def config(**learning) -> CampaignConfig:
    return CampaignConfig.model_validate(
        {
            "task": "softmax",
            "seed": 11,
            "budget": {"generations": GENERATIONS},
            "search": {"population": 6, "offspring": 4, "tuning": {"share": 0.0}},
            "monitors": ("jsonl",),
            "learning": {"every": 3, "base": "model", "allow_modelled": True, **learning},
        }
    )


def run(path, trainer, policy=None, *, resume=False):
    policy = policy or Learns()
    with mock.patch("evo.learning.run_training", trainer):
        given = {"evaluator": fakes.FakeEvaluator(), "policy": policy}
        campaign = Campaign.resume(path, **given) if resume else Campaign(config(), path, **given)
        campaign.task = fakes.task()
        return campaign.run(), policy


def learned(path):
    history, _ = journal.read(Path(path) / "journal.jsonl")
    return [dict(event.data) for event in history if event.kind == LEARNED]


def test_the_policy_learns_every_third_generation_and_each_training_goes_on_from_the_last(tmp_path):
    trainer = Trainer()
    _, policy = run(tmp_path / "run", trainer)
    folders = [str(tmp_path / "run" / ADAPTERS / name) for name in ("g0003", "g0006")]
    assert policy.adapters == [("run-g0003", folders[0]), ("run-g0006", folders[1])]
    assert [trainer.option("--out", index) for index in (0, 1)] == folders
    assert [trainer.option("--adapter", index) for index in (0, 1)] == [None, folders[0]]
    assert [trainer.option("--seed", index) for index in (0, 1)] == ["3", "6"]
    assert "--allow-modelled" in trainer.commands[0]
    assert [(one["generation"], one["kept"], one["after"]) for one in learned(tmp_path / "run")] == [
        (3, True, 1.0),
        (6, True, 1.0),
    ]


def test_an_adapter_that_does_worse_on_the_probe_is_dropped(tmp_path):
    trainer = Trainer(0.6, 0.4)
    _, policy = run(tmp_path / "run", trainer)
    assert [name for name, _ in policy.adapters] == ["run-g0003"]
    assert [one["kept"] for one in learned(tmp_path / "run")] == [True, False]


def test_an_adapter_that_the_policy_cannot_load_is_dropped_and_not_gone_on_from(tmp_path):
    class Refuses(Learns):
        def use_adapter(self, name, path):
            if not self.adapters:
                self.adapters.append(("refused", name))
                raise KernevoError(f"{path}: does not load")
            super().use_adapter(name, path)

    trainer = Trainer()
    _, policy = run(tmp_path / "run", trainer, Refuses())
    assert [name for name, _ in policy.adapters] == ["refused", "run-g0006"]
    assert [one["kept"] for one in learned(tmp_path / "run")] == [False, True]
    assert trainer.option("--adapter") is None


def test_a_training_that_fails_leaves_the_policy_and_the_campaign_as_they_are(tmp_path):
    result, policy = run(tmp_path / "run", Trainer(codes=(1, 4)))
    assert result.stopped == "generations"
    assert policy.adapters == []
    assert [one["exit_code"] for one in learned(tmp_path / "run")] == [1, 4]


def test_an_interrupted_training_interrupts_the_campaign_and_is_taken_up_by_resume(tmp_path):
    result, _ = run(tmp_path / "run", Trainer(codes=(130,)))
    assert result.interrupted
    assert learned(tmp_path / "run") == []
    trainer = Trainer()
    result, policy = run(tmp_path / "run", trainer, resume=True)
    assert "--resume" in trainer.commands[0]
    assert [name for name, _ in policy.adapters] == ["run-g0003", "run-g0006"]
    assert len(result.run.generations()) == GENERATIONS


def test_a_resumed_run_swaps_its_adapter_in_again_and_trains_nothing_twice(tmp_path):
    run(tmp_path / "whole", Trainer())
    run(tmp_path / "run", Trainer())
    path = tmp_path / "run" / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    ends = [index for index, line in enumerate(lines) if b'"kind": "learned"' in line]
    path.write_bytes(b"".join(lines[: ends[0] + 3]))
    trainer = Trainer()
    _, policy = run(tmp_path / "run", trainer, resume=True)
    assert [trainer.option("--out", index) for index in range(len(trainer.commands))] == [
        str(tmp_path / "run" / ADAPTERS / "g0006")
    ]
    assert [name for name, _ in policy.adapters] == ["run-g0003", "run-g0006"]
    found = [[one.candidate.source_sha for one in Run.load(tmp_path / name).records()] for name in ("whole", "run")]
    assert found[0] == found[1]


def test_a_policy_that_cannot_change_its_adapter_is_refused_before_anything_is_judged(tmp_path):
    with pytest.raises(UsageError, match="0 policies of the campaign can change their adapter"):
        run(tmp_path / "run", Trainer(), fakes.FakePolicy())
