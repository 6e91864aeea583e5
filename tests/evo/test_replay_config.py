"""A run's answers replayed by config: the same search asks the same and gets the same."""

from __future__ import annotations

import shutil

import pytest

from evaluator.errors import UsageError
from evo import build
from evo.campaign import Campaign
from evo.cli.plan import plan_of
from evo.config import CampaignConfig
from evo.config_file import load_config
from tests.evo import fakes
from tests.evo.driver import campaign, config


@pytest.fixture
def recorded(tmp_path):
    return campaign(tmp_path / "recorded", "start").run().run


def replaying(recorded, path, evaluator=None):
    settings = {**config().model_dump(), "policy": {"type": "replay", "run": str(recorded)}}
    made = Campaign(CampaignConfig.model_validate(settings), path, evaluator=evaluator or fakes.FakeEvaluator())
    made.task = fakes.task()
    return made


def answers(run):
    """(parent's program, answer) of every rewritten child."""
    rewritten = [record.candidate for record in run.records() if record.candidate.operator == "rewrite"]
    return [(run.record(child.parent_ids[0]).candidate.ast_hash, child.answer) for child in rewritten]


def test_a_replay_judges_recorded_answers_of_the_same_parents_each_once(recorded, tmp_path):
    again = replaying(recorded.path, tmp_path / "again").run().run
    given = answers(again)
    assert len(given) > 20
    assert len(set(given)) == len(given)
    assert set(given) <= set(answers(recorded))
    replayed = [r.candidate for r in again.records() if r.candidate.operator == "rewrite"]
    assert {(child.policy, child.policy_version) for child in replayed} == {("replay", "fake 0")}


def test_an_interrupted_replay_goes_on_behind_what_it_had(recorded, tmp_path):
    class Interrupting(fakes.FakeEvaluator):
        def _judge(self, source):
            if len(self.judged) == 23:
                running.interrupt.request()
            return super()._judge(source)

    running = replaying(recorded.path, tmp_path / "again", Interrupting())
    before = answers(running.run().run)
    resumed = Campaign.resume(tmp_path / "again", evaluator=fakes.FakeEvaluator())
    resumed.task = fakes.task()
    after = answers(resumed.run().run)
    assert after[: len(before)] == before
    assert len(set(after)) == len(after) > len(before) > 0


def test_a_recorded_run_judged_more_strictly_still_gets_its_answers(recorded, tmp_path):
    class Strict(fakes.FakeEvaluator):
        def _judge(self, source):
            judged = super()._judge(source)
            if len(source.text) % 3:
                return judged
            return judged.model_copy(update={"explain": "judged again"})

    again = replaying(recorded.path, tmp_path / "again", Strict()).run().run
    assert any(r.evaluation.explain == "judged again" for r in again.records())


def test_a_file_of_trajectories_is_replayed_without_its_run(recorded, tmp_path):
    alone = tmp_path / "alone.jsonl"
    shutil.copy(recorded.path / "trajectories.jsonl", alone)
    from_run = replaying(recorded.path, tmp_path / "one").run().run
    from_file = replaying(alone, tmp_path / "two").run().run
    assert answers(from_file) == answers(from_run) != []


def test_a_folder_without_a_run_is_named_where_the_config_says_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text(
        "task: softmax\npolicy:\n  type: replay\n  run: runs/none\nbudget:\n  evaluations: 5\n"
    )
    with pytest.raises(UsageError, match=r"my\.yaml:4.*policy\.run.*'runs/none' holds no run"):
        load_config("my.yaml")


def test_the_plan_and_the_registry_know_the_policy(recorded, tmp_path):
    made = replaying(recorded.path, tmp_path / "again")
    assert str(recorded.path) in plan_of(made)["policy"]
    assert build.make_policy(made.config).name == "replay"
