"""Crossover replays onto the faster of two kernels what the other has beyond it, alike in a resumed run."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from evaluator.errors import UsageError
from evo import events, journal
from evo.bandit import reward
from evo.config_search import SearchConfig
from evo.operators.crossover import lacking, replayed
from evo.report.data import by_rewrite
from evo.scheduler import portion
from policy.rewrites import RewriteContext, apply_steps, catalogue
from policy.types import RewriteStep
from tests.evo import fakes
from tests.evo.configs import load_mapping
from tests.evo.driver import config, searched
from tests.evo.made import record
from tests.evo.test_resume import resumed_from_cuts, state

CONTEXT = RewriteContext.of_task(fakes.task())


def settings(evaluations=60, search=(), **operators):
    found = {"population": 6, "offspring": 6, "operators": {"crossover": 0.3, **operators}, **dict(search)}
    return config(evaluations).model_copy(update={"search": SearchConfig.model_validate(found)})


def crossed(run):
    """Children by rewrite histories; those by functions add nothing to their parent's history."""
    found = [item for item in run.records() if item.candidate.operator == "crossover"]
    return [
        item for item in found if item.candidate.rewrites != run.record(item.candidate.parent_ids[0]).candidate.rewrites
    ]


def step(name, number=0):
    return RewriteStep(name=name, args={"number": number})


def applicable(name):
    rewrite = catalogue()[name]
    found = rewrite.candidates(fakes.SEED, CONTEXT)[0]
    return RewriteStep(name=name, args=found.model_dump(mode="json"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return searched(tmp_path_factory.mktemp("crossed") / "run", settings(90))


def test_a_child_is_the_faster_parent_with_what_the_other_has_beyond_it(run):
    children = crossed(run)
    assert len(children) >= 3
    for child in children:
        faster, slower = (run.record(parent) for parent in child.candidate.parent_ids)
        known = len(faster.candidate.rewrites)
        added = child.candidate.rewrites[known:]
        assert (faster.speedup or 0) >= (slower.speedup or 0) > 0
        assert child.candidate.rewrites[:known] == faster.candidate.rewrites
        assert added
        wanted = iter(lacking(faster, slower))
        assert all(one in wanted for one in added), "in the order of the slower one's history"
        source = run.source(faster.candidate.source_sha).text
        assert run.source(child.candidate.source_sha).text == apply_steps(source, added, CONTEXT)


def test_no_child_has_a_structure_that_was_there_before(run):
    born = {}
    for item in run.records():
        if item.candidate.operator == "crossover":
            assert item.candidate.structure not in born
        born.setdefault(item.candidate.structure, item)


def test_the_report_credits_a_child_with_the_rewrites_that_it_got(run):
    by_id = {item.id: item for item in run.records()}
    for child in crossed(run):
        known = len(by_id[child.candidate.parent_ids[0]].candidate.rewrites)
        got = [name for name, _ in by_rewrite([child], by_id)]
        assert got == list(dict.fromkeys(one.name for one in child.candidate.rewrites[known:]))


def test_what_no_longer_applies_or_is_unknown_is_left_out_and_the_rest_applied():
    drop, hint = applicable("drop_mask"), applicable("cache_hints")
    source, applied = replayed(fakes.SEED, [step("grow"), hint, hint, drop], CONTEXT)
    assert applied == (hint, drop)
    assert source == apply_steps(fakes.SEED, [hint, drop], CONTEXT)


def test_where_nothing_applies_the_source_stays_as_it_is():
    assert replayed(fakes.SEED, [step("grow"), step("whole_row")], CONTEXT) == (fakes.SEED, ())


@pytest.mark.parametrize(
    ("one", "other", "lacks"),
    [
        ("", "ab", "ab"),
        ("a", "ab", "b"),
        ("b", "abc", "ac"),
        ("a", "aba", "ba"),
        ("ab", "ba", ""),
        ("abc", "a", ""),
    ],
)
def test_what_both_did_as_often_is_not_done_again(one, other, lacks):
    first, second = (record(number, 1.0, rewrites=tuple(map(step, names))) for number, names in enumerate((one, other)))
    assert [item.name for item in lacking(first, second)] == list(lacks)


def test_the_same_rewrite_with_another_argument_is_another_step():
    first, second = record(0, 1.0, rewrites=(step("a", 1),)), record(1, 1.0, rewrites=(step("a", 2),))
    assert lacking(first, second) == [step("a", 2)]


def test_by_default_nothing_is_crossed(tmp_path):
    assert not crossed(searched(tmp_path / "run", settings(60, crossover=0.0)))


def test_parents_and_child_live_on_one_island(tmp_path):
    found = searched(tmp_path / "run", settings(120, {"islands": {"count": 2, "migrate_every": 100}}))
    children = crossed(found)
    assert {child.candidate.island for child in children} == {0, 1}
    for child in children:
        parents = [found.record(parent) for parent in child.candidate.parent_ids]
        assert {one.candidate.island for one in parents if one.candidate.parent_ids} <= {child.candidate.island}


@pytest.mark.parametrize(("share", "count"), [(0.1, 5), (0.3, 6), (1.0, 4), (0.0, 8)])
def test_a_share_below_one_place_adds_up_over_the_generations(share, count):
    places = [portion(share, count, generation) for generation in range(200)]
    assert sum(places) == pytest.approx(share * count * 200, abs=1)
    assert max(places) - min(places) <= 1


def test_with_the_bandit_crossover_is_an_arm_that_is_paid_by_the_faster_parent(tmp_path):
    found = searched(tmp_path / "run", settings(90, kind="bandit"))
    children = crossed(found)
    assert children
    last = json.loads((found.path / "metrics.jsonl").read_text().splitlines()[-1])
    credit = last["credits"]["crossover"]
    gains = [
        reward(child.speedup, max(found.record(one).speedup for one in child.candidate.parent_ids))
        for child in children
    ]
    assert credit["tried"] == len(children)
    assert credit["gain"] == pytest.approx(sum(gains))


def test_with_the_bandit_the_journal_says_how_many_places_crossover_was_given(tmp_path):
    found = searched(tmp_path / "run", settings(90, kind="bandit"))
    lines, _ = journal.read(found.dir.journal)
    batches = [events.Batch.model_validate(line.data) for line in lines if line.kind == events.BATCH]
    made = [Counter(one.arm for one in batch.candidates)["crossover"] for batch in batches]
    given = [batch.asked.get("crossover", 0) for batch in batches]
    assert all(children <= places for children, places in zip(made, given, strict=True))
    assert sum(given) > 0


@pytest.mark.parametrize(
    ("kind", "policy"), [("fixed", "rule"), ("fixed", "async_rule"), ("bandit", "rule"), ("bandit", "async_rule")]
)
def test_a_run_with_crossover_resumes_from_every_part_of_its_journal_to_the_same_end(tmp_path, kind, policy):
    whole = searched(tmp_path / "whole", settings(60, kind=kind), policy)
    assert crossed(whole)
    assert list(resumed_from_cuts(whole.path, (20, 34, 47, 61), tmp_path, policy)) == [state(whole.path)] * 4


def test_shares_that_are_more_than_a_batch_are_refused():
    search = {"tuning": {"share": 0.8}, "operators": {"crossover": 0.4}}
    with pytest.raises(UsageError, match=r"search\.operators\.crossover: 0\.4 of a batch and 0\.8 for tuning"):
        load_mapping({"task": "softmax", "search": search, "budget": {"evaluations": 5}})
