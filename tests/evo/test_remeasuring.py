"""Owners of cells and leaders are measured again every few generations, alike in a resumed run."""

from __future__ import annotations

import random

import pytest

from evaluator.types import EvalStatus
from evo import events, journal
from evo.archive import Archive
from evo.campaign import Campaign
from evo.config import CampaignConfig
from evo.config_search import ArchiveConfig
from evo.events import Remeasured
from evo.remeasuring import AT_ONCE, Remeasuring
from evo.run import Run
from tests.evo import fakes
from tests.evo.made import record
from tests.evo.test_resume import state


class LuckyJudge(fakes.FakeEvaluator):
    """Measures what is judged with luck that follows from the source, and what is timed again without any."""

    def __init__(self, breaks=lambda text: False, stop_after=10**9):
        super().__init__()
        self.again: list[str] = []
        self.campaign = None
        self._breaks, self._left = breaks, stop_after

    def _measured(self, source, luck):
        found = super()._judge(source)
        if not found.status.passed:
            return found
        (timing,) = found.timings.values()
        now = timing.model_copy(update={"kind": "measured", "median_ms": timing.median_ms * luck})
        return found.model_copy(update={"timings": {"w": now}, "evaluator": "gpu"})

    def _judge(self, source):
        return self._measured(source, random.Random(source.sha).uniform(0.5, 1.0))

    def retime(self, jobs):
        for job in jobs:
            self.again.append(job.source.sha)
            self._left -= 1
            if self._left == 0:
                self.campaign.interrupt.requested = True
            if self._breaks(job.source.text):
                yield job, fakes.failed(job.source, EvalStatus.NONDETERMINISTIC, "other values the second time")
            else:
                yield job, self._measured(job.source, 1.0)


def made(path, judge, evaluations=80, archive=()):
    search = {"population": 6, "offspring": 5, "archive": {"remeasure": 2, **dict(archive)}, "islands": {"count": 2}}
    data = {"task": "softmax", "seed": 3, "search": search, "budget": {"evaluations": evaluations}, "monitors": ()}
    config = CampaignConfig.model_validate({**data, "finalists": {"count": 0}})
    judge.campaign = Campaign(config, path, evaluator=judge, policy=fakes.FakePolicy())
    judge.campaign.task = fakes.task()
    return judge.campaign


def timed_again(run):
    lines, _ = journal.read(run.path / "journal.jsonl")
    return [line.data["candidate"] for line in lines if line.kind == events.REMEASURED]


def test_owners_and_leaders_are_timed_again_every_few_generations_and_the_journal_says_so(tmp_path):
    judge = LuckyJudge()
    run = made(tmp_path / "run", judge).run().run
    named = timed_again(run)
    assert [run.record(one).candidate.source_sha for one in named] == judge.again
    assert 4 <= len(named) <= AT_ONCE * len(run.generations()) / 2
    ends = run.generations()
    assert set(named) <= {one for end in ends for one in (*end.archive.values(), *end.population)}


def test_whoever_was_timed_again_counts_without_the_luck_of_the_first_timing(tmp_path):
    running = made(tmp_path / "run", LuckyJudge())
    run = running.run().run
    search, named = running._scheduler, set(timed_again(run))
    held = {one.id: one for one in (*search.archive.owners, *(member.record for member in search.islands.members))}
    told = [held[name] for name in sorted(named & set(held))]
    assert told
    for one in told:
        steady = fakes.latency(fakes.SEED) / fakes.latency(run.source(one.candidate.source_sha).text)
        assert one.speedup == pytest.approx(steady)
        assert one.speedup < run.record(one.id).speedup
    assert search.best.speedup == max(one.speedup or 0.0 for one in held.values())


def test_an_owner_that_fails_gives_its_cell_up_and_dies_out(tmp_path):
    judge = LuckyJudge(breaks=lambda text: True)
    running = made(tmp_path / "run", judge)
    run = running.run().run
    gone = set(timed_again(run))
    assert len(gone) >= 4
    last = run.generations()[-1]
    held = {*last.archive.values(), *last.population}
    assert not held & (gone - set(timed_again(run)[-AT_ONCE:]))


def test_modelled_latencies_and_judges_that_cannot_measure_again_leave_it_out(tmp_path):
    run = made(tmp_path / "plain", fakes.FakeEvaluator()).run().run
    assert not timed_again(run)
    judge = LuckyJudge()
    made(tmp_path / "off", judge, archive={"remeasure": None}).run()
    assert not judge.again


@pytest.mark.parametrize("stop_after", [1, 3, 6])
def test_a_run_that_is_interrupted_while_it_times_again_goes_on_there(tmp_path, stop_after):
    whole = made(tmp_path / "whole", LuckyJudge()).run().run
    first = LuckyJudge(stop_after=stop_after)
    assert made(tmp_path / "cut", first).run().interrupted
    rest = LuckyJudge()
    resumed = Campaign.resume(tmp_path / "cut", evaluator=rest, policy=fakes.FakePolicy())
    resumed.task = fakes.task()
    resumed.run()
    assert timed_again(Run.load(tmp_path / "cut")) == timed_again(whole)
    assert state(tmp_path / "cut") == state(tmp_path / "whole")


def measured(number, speedup):
    return Remeasured(candidate=f"c{number:06d}", evaluation=record(number, speedup).evaluation)


def test_of_two_timings_the_slower_counts_and_of_three_the_middle_one():
    doubts, one = Remeasuring(ArchiveConfig(remeasure=1)), record(1, 3.0)
    found = []
    for speedup in (2.0, 2.5):
        doubts.plan(0, [one])
        _, now = doubts.answer(measured(1, speedup))
        found.append(now.speedup)
        one = now
    assert found == [pytest.approx(2.0), pytest.approx(2.5)]


def test_those_that_were_timed_least_often_come_first():
    doubts, pool = Remeasuring(ArchiveConfig(remeasure=1)), [record(number, 1.0 + number) for number in range(6)]
    doubts.plan(0, pool)
    assert [one.number for one in doubts.open] == [5, 4, 3, 2]
    for number in (5, 4, 3, 2):
        doubts.answer(measured(number, 1.0 + number))
    doubts.plan(1, pool)
    assert [one.number for one in doubts.open] == [1, 0, 5, 4]


def test_a_lost_worker_is_not_the_owners_fault():
    doubts = Remeasuring(ArchiveConfig(remeasure=1))
    doubts.plan(0, [record(1, 3.0)])
    lost = fakes.failed(fakes.KernelSource(text="x"), EvalStatus.WORKER_LOST, "gone")
    _, now = doubts.answer(Remeasured(candidate="c000001", evaluation=lost))
    assert now.speedup == pytest.approx(3.0)


def test_a_challenger_that_lost_to_luck_takes_the_cell_once_the_owner_was_measured_again():
    archive, lucky, steady = Archive(), record(1, 3.0), record(2, 2.5)
    archive.add(("cell",), lucky)
    assert not archive.add(("cell",), steady)
    archive.replace(lucky, record(1, 2.0))
    assert archive.add(("cell",), steady)
