"""A policy that answers slowly is asked ahead: judging never waits for it, and a resumed run asks the same."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from concurrent.futures import Future

import pytest

from evaluator.errors import EnvironmentUnusableError
from evo import build
from evo.campaign import Campaign
from evo.run import Run
from tests.evo import fakes
from tests.evo.driver import campaign, config
from tests.evo.test_resume import finish, kill_when_grown, size, start, state

KILLS = 6


def generation_of(requests):
    return int(requests[0].request_id[1:6])


class SlowPolicy(fakes.AsyncFakePolicy):
    """What it is asked ahead is answered only once somebody calls `release`; the rest at once.

    Nobody can ask ahead for generation 1, and what is asked again is needed now.
    """

    def __init__(self, events):
        super().__init__()
        self.events = events
        self.open = {}
        self.ahead = set()

    def submit(self, requests):
        generation = generation_of(requests)
        self.events.append(("asked", generation))
        future = Future()
        self.futures.append(future)
        if generation == 1 or generation in self.ahead:
            future.set_result(self.propose(requests))
        else:
            self.ahead.add(generation)
            self.open[generation] = (future, requests)
        return future

    def release(self):
        for generation, (future, requests) in self.open.items():
            self.events.append(("answered", generation))
            future.set_result(self.propose(requests))
        self.open.clear()


class WatchedEvaluator(fakes.FakeEvaluator):
    """Notes what it judges; only a verdict lets the policy answer."""

    def __init__(self, policy):
        super().__init__()
        self._policy = policy

    def evaluate(self, jobs):
        policy = self._policy
        for job, evaluation in super().evaluate(jobs):
            policy.events.append(("judged", job.job_id))
            policy.release()
            yield job, evaluation


def made(path, evaluator, policy, settings=None):
    campaign = Campaign(settings or config(40), path, evaluator=evaluator, policy=policy)
    campaign.task = fakes.task()
    return campaign


def metrics(run):
    return [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.timeout(60)
def test_a_generation_is_judged_while_the_policy_still_thinks_about_the_next(tmp_path):
    policy = SlowPolicy([])
    result = made(tmp_path / "run", WatchedEvaluator(policy), policy).run()
    assert result.stopped == "evaluations"
    generations = {record.id: record.candidate.generation for record in result.run.records()}
    places = {event: place for place, event in reversed(list(enumerate(policy.events)))}
    assert policy.ahead == set(range(2, len(result.run.generations())))
    for later in policy.ahead:
        judged = [places["judged", name] for name, number in generations.items() if number == later - 1]
        assert places["asked", later] < min(judged) < places["answered", later]


def test_nothing_is_asked_ahead_where_the_config_says_so(tmp_path):
    search = config().search.model_copy(update={"prefetch": False})
    policy = SlowPolicy([])
    evaluator = WatchedEvaluator(policy)
    policy.ahead = set(range(100))  # every request is answered at once
    made(tmp_path / "run", evaluator, policy, config(40).model_copy(update={"search": search})).run()
    generations = {record.id: record.candidate.generation for record in Run.load(tmp_path / "run").records()}
    last = 0
    for kind, what in policy.events:
        if kind == "judged":
            last = generations[what]
        else:
            assert what == last + 1


def test_nothing_is_asked_for_generations_behind_the_budget(tmp_path):
    for budget in ({"evaluations": 16}, {"generations": 4}):
        settings = config().model_copy(update={"budget": type(config().budget).model_validate(budget)})
        policy = fakes.AsyncFakePolicy()
        result = made(tmp_path / str(budget), fakes.FakeEvaluator(), policy, settings).run()
        assert max(map(generation_of, policy.asked)) == result.run.generations()[-1].generation == 3
        policy.close()


def test_metrics_say_what_was_asked_and_how_long_the_campaign_stood_still(tmp_path):
    result = campaign(tmp_path / "run", "start", policy="async").run()
    lines = metrics(result.run)
    assert lines[0]["policy_asked"] == lines[0]["policy_answered"] == 0  # nobody is asked for the seed
    for line in lines[1:]:
        assert line["policy_asked"] >= line["policy_answered"] >= line["operators"].get("rewrite", 0)
        assert line["policy_seconds"] >= 0


def test_the_trace_says_that_asking_ahead_overlaps_with_judging(tmp_path):
    policy = SlowPolicy([])
    lines = metrics(made(tmp_path / "run", WatchedEvaluator(policy), policy).run().run)
    assert lines[0]["policy_spans"] == []
    before = None
    for line in lines:
        began, ended = line["judge_span"]
        assert began <= ended <= line["seconds"]
        if line["generation"] in policy.ahead:
            sent, answered = line["policy_spans"][0]
            assert before[0] - 1 <= sent <= answered <= before[1], "it was asked when judging was about to begin"
        before = (began, ended)


def test_what_is_missing_behind_answers_that_were_asked_ahead_is_left_to_the_tuner(tmp_path):
    class Repeating(fakes.AsyncFakePolicy):
        """Gives every request of a round the child of the first."""

        def propose(self, requests):
            return [super(Repeating, self).propose(requests[:1])[0] for _ in requests]

    policy = Repeating()
    run = made(tmp_path / "run", fakes.FakeEvaluator(), policy).run().run
    rounds = Counter(map(generation_of, policy.asked))
    assert rounds.pop(1) > 1, "nobody waits in vain: nothing could be asked ahead"
    assert set(rounds.values()) == {1}
    for line in metrics(run)[2:]:
        assert line["operators"].get("rewrite", 0) <= 1
        assert line["operators"]["tune"] >= line["batch"] - 1
    policy.close()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "run"
    campaign(path, "start", policy="async").run()
    return path


def test_a_run_cut_off_behind_any_event_ends_like_an_uninterrupted_one(uninterrupted, tmp_path):
    whole = (uninterrupted / "journal.jsonl").read_bytes().splitlines(keepends=True)
    expected = state(uninterrupted)
    for cut in range(1, len(whole), 3):  # a generation is 7 lines long, so that every place of it is met
        path = tmp_path / str(cut)
        shutil.copytree(uninterrupted, path)
        (path / "journal.jsonl").write_bytes(b"".join(whole[:cut]))
        campaign(path, "resume", policy="async").run()
        assert state(path) == expected, f"cut behind line {cut}"


def test_a_finished_run_asks_nothing_when_it_is_resumed(uninterrupted, tmp_path):
    shutil.copytree(uninterrupted, tmp_path / "run")
    resumed = campaign(tmp_path / "run", "resume", policy="async")
    resumed.run()
    assert resumed._given[1].futures == []


@pytest.mark.timeout(300)
def test_a_killed_run_whose_policy_is_asked_ahead_ends_like_an_uninterrupted_one(tmp_path):
    whole, path = tmp_path / "whole", tmp_path / "run"
    finish(start(whole, "start", policy="async_rule"))
    process, killed = start(path, "start", "7", "async_rule"), 0
    for number in range(1, KILLS + 1):
        killed += kill_when_grown(process, path, size(whole) * number // (KILLS + 1))
        process = start(path, "resume" if (path / "config.resolved.json").exists() else "start", "7", "async_rule")
    finish(process)
    assert killed >= KILLS // 2
    assert state(path) == state(whole)


class NeverAnswering(fakes.AsyncFakePolicy):
    """Answers the first generation only."""

    def submit(self, requests):
        if generation_of(requests) == 1:
            return super().submit(requests)
        self.futures.append(Future())
        return self.futures[-1]


@pytest.mark.timeout(60)
def test_ctrl_c_while_judging_cancels_what_was_asked_ahead(tmp_path, monkeypatch):
    policy = NeverAnswering()
    monkeypatch.setattr(build, "make_policy", lambda config: policy)

    class Interrupting(fakes.FakeEvaluator):
        def _judge(self, source):
            if len(self.judged) == 3:
                running.interrupt.request()
            return super()._judge(source)

    running = made(tmp_path / "run", Interrupting(), None)
    assert running.run().interrupted
    assert policy.futures[-1].cancelled()
    assert policy.closed
    assert len(Run.load(tmp_path / "run").records()) == 3


@pytest.mark.timeout(60)
def test_ctrl_c_while_waiting_for_the_policy_stops_and_the_run_resumes_to_the_same_end(uninterrupted, tmp_path):
    path = tmp_path / "run"
    stopping = campaign(path, "start", policy="async")
    never = Future()

    def submit(requests):
        # The first generation cannot be asked ahead: the campaign stands still for it.
        assert generation_of(requests) == 1
        stopping.interrupt.request()
        return never

    stopping._given[1].submit = submit
    assert stopping.run().interrupted
    assert never.cancelled()
    assert len(Run.load(path).records()) == 1
    campaign(path, "resume", policy="async").run()
    assert state(path) == state(uninterrupted)


def test_an_error_of_the_policy_ends_the_session_and_leaves_a_run_to_resume(uninterrupted, tmp_path):
    path = tmp_path / "run"
    failing = campaign(path, "start", policy="async")
    real = failing._given[1].submit

    def submit(requests):
        if generation_of(requests) < 4:
            return real(requests)
        broken = Future()
        broken.set_exception(EnvironmentUnusableError("the server is gone", "start it again"))
        return broken

    failing._given[1].submit = submit
    with pytest.raises(EnvironmentUnusableError, match="the server is gone"):
        failing.run()
    assert Run.load(path).generations()[-1].generation == 3
    campaign(path, "resume", policy="async").run()
    assert state(path) == state(uninterrupted)
