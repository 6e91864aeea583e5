"""What the search tells a policy: parents, elites of other cells, earlier attempts, and nothing into the journal."""

from __future__ import annotations

import pytest

from evaluator.types import EvalStatus
from evo import scheduler
from evo.measures import cell_of, syntax_words
from evo.operators import rewrite
from policy.rule_policy import RulePolicy
from tests.evo import fakes
from tests.evo.driver import campaign, config


class Asked(fakes.FakePolicy):
    """Keeps the requests, in order."""

    def __init__(self):
        self.requests = []

    def propose(self, requests):
        self.requests += requests
        return super().propose(requests)


def searched(path, settings=None):
    """A finished campaign's run and every request that its policy got."""
    running = campaign(path, "start")
    if settings is not None:
        running.config = settings
    policy = Asked()
    running._given = (running._given[0], policy)
    return running.run().run, policy.requests


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    return searched(tmp_path_factory.mktemp("asked") / "run")


def born_before(run, request):
    generation = int(request.request_id[1:6])
    return [record for record in run.records() if record.candidate.generation < generation]


def test_attempts_are_the_latest_judged_children_of_the_parent_earliest_first(asked):
    run, requests = asked
    for request in requests:
        parent = request.parents[0].candidate_id
        children = [r for r in born_before(run, request) if parent in r.candidate.parent_ids]
        wanted = sorted(record.id for record in children)[-scheduler.ATTEMPTS :]
        assert [view.candidate_id for view in request.attempts] == wanted
        assert all(view.evaluation == run.record(view.candidate_id).evaluation for view in request.attempts)
    assert max(len(request.attempts) for request in requests) > 1
    assert any(view.evaluation.status is not EvalStatus.PASSED for r in requests for view in r.attempts)


def test_a_parent_with_many_children_shows_the_latest_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(scheduler, "ATTEMPTS", 2)
    run, requests = searched(tmp_path / "run")
    for request in requests:
        parent = request.parents[0].candidate_id
        children = sorted(r.id for r in born_before(run, request) if parent in r.candidate.parent_ids)
        assert [view.candidate_id for view in request.attempts] == children[-2:]


def test_inspirations_are_passed_elites_of_other_cells_than_the_parents_fastest_first(asked):
    run, requests = asked

    def cell(candidate_id):
        record = run.record(candidate_id)
        return cell_of(syntax_words(run.source(record.candidate.source_sha).text), record.evaluation)

    assert any(request.inspirations for request in requests)
    for request in requests:
        shown = request.inspirations
        cells = [cell(view.candidate_id) for view in shown]
        parent = request.parents[0]
        if parent.evaluation.status.passed:
            assert cell(parent.candidate_id) not in cells
        assert len(set(cells)) == len(cells) <= rewrite.INSPIRATIONS
        speedups = [view.evaluation.speedup for view in shown]
        assert speedups == sorted(speedups, reverse=True)


def test_requests_about_one_parent_in_one_generation_show_the_same(asked):
    _, requests = asked
    shown = {}
    for request in requests:
        key = (request.request_id[:6], request.parents[0].candidate_id)
        assert shown.setdefault(key, (request.inspirations, request.attempts)) == (
            request.inspirations,
            request.attempts,
        )


def test_without_an_archive_nothing_of_it_is_shown(tmp_path):
    search = config().search
    search = search.model_copy(update={"archive": search.archive.model_copy(update={"enabled": False})})
    _, requests = searched(tmp_path / "run", config(30).model_copy(update={"search": search}))
    assert requests
    assert not any(request.inspirations for request in requests)


def test_requests_are_not_journaled(asked):
    run, _ = asked
    text = run.dir.journal.read_text()
    assert "inspirations" not in text
    assert "attempts" not in text


def test_the_rule_policy_answers_alike_whatever_else_a_request_shows(asked):
    _, requests = asked
    full = next(request for request in requests if request.inspirations and request.attempts)
    bare = full.model_copy(update={"inspirations": (), "attempts": ()})
    answers = RulePolicy().propose([full])
    assert answers == RulePolicy().propose([bare])
    assert answers[0]
