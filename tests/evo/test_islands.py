"""Islands evolve apart, exchange copies of their best, start again when they are stuck, and survive a resume."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.errors import UsageError
from evo.archive import Archive
from evo.config_search import SearchConfig
from evo.islands import Islands
from evo.monitors import Step
from evo.monitors.console import islands_line
from evo.run import Run
from evo.strategies import STRATEGIES
from evo.streams import Streams
from policy.rewrites.catalogue import catalogue
from policy.rule_policy import RulePolicy
from tests.evo import fakes
from tests.evo.configs import load_mapping
from tests.evo.driver import campaign, config
from tests.evo.made import record
from tests.evo.test_resume import resumed_from_cuts, state
from tests.evo.test_rewrite_operator import Asked


def islands(count=3, population=12, **settings):
    found = {"population": population, "islands": {"count": count, **settings}}
    return Islands(SearchConfig.model_validate(found), Streams(1))


def told(made, generation, *records, archive=None):
    made.advance([made.individual(item, 10) for item in records], generation, archive or Archive(), lambda item: 10)


def ids(island):
    return [item.id for item in island.records]


SEED = record(0, 1.0, operator="seed")


def child(number, speedup, island, structure=None, **facts):
    return record(number, speedup, structure, island=island, parent_ids=("c000000",), **facts)


def settings(**wanted):
    base = config(wanted.pop("evaluations", 60))
    search = SearchConfig.model_validate({"population": 8, "offspring": 6, **wanted})
    return base.model_copy(update={"search": search})


def searched(path, policy=None, **wanted):
    running = campaign(path, "start")
    running.config = settings(**wanted)
    if policy is not None:
        running._given = (running._given[0], policy)
    return running.run().run


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    policy = Asked()
    wanted = {"islands": {"count": 3, "migrate_every": 2, "stagnation": 3}}
    return searched(tmp_path_factory.mktemp("islands") / "run", policy, **wanted), policy.requests


def test_the_seed_lives_on_every_island():
    made = islands()
    told(made, 0, SEED)
    assert [ids(island) for island in made] == [["c000000"]] * 3


def test_offspring_stay_on_the_island_of_their_parent():
    made = islands()
    told(made, 0, SEED)
    told(made, 1, child(1, 1.5, 0), child(2, 1.4, 2))
    assert [set(ids(island)) - {"c000000"} for island in made] == [{"c000001"}, set(), {"c000002"}]


def test_a_better_config_of_a_structure_reaches_every_island_that_holds_it():
    made = islands()
    told(made, 0, SEED)
    told(made, 1, child(1, 1.5, 0, structure="s0", operator="tune"))
    assert [ids(island) for island in made] == [["c000001"]] * 3


def test_all_islands_get_offspring_and_not_the_first_alone(asked):
    run, _ = asked
    born = Counter(item.candidate.island for item in run.records() if item.candidate.operator == "rewrite")
    assert set(born) == {0, 1, 2}
    assert min(born.values()) >= 5


def test_the_generation_counter_of_every_island_goes_on(asked):
    run, _ = asked
    for end in run.generations():
        assert [island.generation for island in end.islands] == [end.generation + 1] * 3


def test_a_child_is_born_where_its_parent_lives_or_was_born(asked):
    run, _ = asked
    for item in run.records():
        if item.candidate.operator == "rewrite":
            parent = run.record(item.candidate.parent_ids[0])
            ends = run.generations()[: item.candidate.generation]
            home = not parent.candidate.parent_ids or parent.candidate.island == item.candidate.island
            assert home or any(parent.id in end.islands[item.candidate.island].members for end in ends)


@given(st.integers(1, 8), st.integers(8, 40), st.lists(st.floats(0.5, 4), min_size=1, max_size=60))
def test_the_limit_on_survivors_holds_over_all_islands(count, population, speeds):
    made = islands(count, population, migrate_every=1, stagnation=2)
    told(made, 0, SEED)
    for number, speed in enumerate(speeds, start=1):
        told(made, number, child(number, speed, number % count))
        assert sum(len(island.records) for island in made) <= population


def test_copies_of_the_best_go_to_the_next_island_of_the_ring_and_stay_at_home():
    made = islands(migrate_every=2)
    told(made, 0, SEED)
    told(made, 1, child(1, 1.5, 0), child(2, 1.4, 1), child(3, 1.3, 2))
    assert [set(ids(island)) - {"c000000"} for island in made] == [
        {"c000001", "c000003"},
        {"c000001", "c000002"},
        {"c000002", "c000003"},
    ]


def test_nothing_migrates_before_its_time_or_with_a_share_of_zero():
    for wanted in ({"migrate_every": 3}, {"migrate_every": 2, "migrants": 0.0}):
        made = islands(**wanted)
        told(made, 0, SEED)
        told(made, 1, child(1, 1.5, 0), child(2, 1.4, 1), child(3, 1.3, 2))
        assert [len(island.records) for island in made] == [2, 2, 2]


def test_a_migrant_that_is_there_already_is_skipped_and_the_home_keeps_its_own_fitness():
    made = islands(2, migrate_every=1)
    told(made, 0, SEED)
    assert [ids(island) for island in made] == [["c000000"]] * 2
    told(made, 1, child(1, 1.5, 0))
    here, there = (next(m for m in i.population.members if m.record.id == "c000001") for i in made)
    assert here.fitness is not there.fitness
    assert here.fitness.values == there.fitness.values


def test_a_lucky_sample_does_not_migrate_before_a_sure_one():
    made = islands(2, migrate_every=2)
    told(made, 0, SEED)
    told(made, 1, child(1, 2.0, 0, low=1.0), child(2, 1.5, 0, low=1.49))
    assert "c000002" in ids(list(made)[1])
    assert "c000001" not in ids(list(made)[1])


def test_a_stuck_island_starts_again_from_the_archive_and_the_leader_does_not():
    made, archive = islands(2, stagnation=2, migrate_every=100), Archive()
    archive.add(("cell",), child(9, 1.2, 0))
    told(made, 0, SEED, archive=archive)
    told(made, 1, child(1, 2.0, 0), child(2, 1.1, 1), archive=archive)
    told(made, 2, archive=archive)
    assert [island.restarts for island in made] == [0, 0]
    told(made, 3, archive=archive)
    leader, stuck = made
    assert (leader.restarts, stuck.restarts) == (0, 1)
    assert ids(leader)[0] == "c000001"
    assert ids(stuck) == ["c000009"]
    told(made, 4, archive=archive)
    assert stuck.restarts == 1


def test_an_island_with_no_limit_never_starts_again():
    made, archive = islands(2, stagnation=None, migrate_every=100), Archive()
    archive.add(("cell",), SEED)
    for generation in range(40):
        told(made, generation, *[SEED] * (generation == 0), archive=archive)
    assert [island.restarts for island in made] == [0, 0]


def test_one_island_records_nothing_of_islands_and_tells_no_direction(tmp_path):
    policy = Asked()
    run = searched(tmp_path / "run", policy, evaluations=20)
    assert all(end.islands == () for end in run.generations())
    assert {(request.strategy, tuple(request.favoured)) for request in policy.requests} == {("", ())}


def test_each_island_tells_the_policy_its_direction(asked):
    _, requests = asked
    assert {request.strategy for request in requests} == {
        STRATEGIES[name].text for name in ("open", "memory", "parallelism")
    }


def test_directions_name_rewrites_that_exist():
    names = {name for strategy in STRATEGIES.values() for name in strategy.favoured}
    assert names <= set(catalogue())


def test_rules_draw_what_the_direction_favours(asked):
    _, requests = asked
    request = requests[0].model_copy(update={"favoured": {}, "taken": frozenset()})
    policy = RulePolicy(max_steps=1)

    def drawn(favoured):
        children = [
            policy.propose([request.model_copy(update={"seed": seed, "favoured": favoured})])[0] for seed in range(60)
        ]
        return Counter(step.name for made in children for child in made for step in child.rewrites)

    plain = drawn({})
    rare = min(plain, key=plain.__getitem__)
    assert drawn({rare: 50.0})[rare] > 2 * plain[rare]


@pytest.mark.parametrize("policy", ["fake", "async"])
def test_a_run_with_islands_resumes_from_every_part_of_its_journal_to_the_same_end(tmp_path, policy):
    wanted = {"islands": {"count": 3, "migrate_every": 3, "stagnation": 1}, "evaluations": 40}
    whole = tmp_path / "whole"
    running = campaign(whole, "start", policy=policy)
    running.config = settings(**wanted)
    running.run()
    ends = Run.load(whole).generations()
    assert max(island.restarts for island in ends[-1].islands) > 0
    assert list(resumed_from_cuts(whole, (8, 19, 30), tmp_path, policy)) == [state(whole)] * 3


def test_progress_names_every_island(asked):
    run, _ = asked
    last = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()][-1]
    assert [island["strategy"] for island in last["islands"]] == ["open", "memory", "parallelism"]
    line = islands_line(Step.model_validate(last))
    assert re.search(r"0 open \d\.\d{3}x, 3 kept  1 memory .*  2 parallelism ", line)


def test_more_islands_than_survivors_are_refused_with_the_place():
    data = {"task": "softmax", "budget": {"evaluations": 5}, "search": {"population": 3, "islands": {"count": 4}}}
    with pytest.raises(UsageError, match="4 islands cannot share 3 survivors"):
        load_mapping(data)


def test_turns_say_on_which_island_they_were_born(tmp_path):
    run = searched(tmp_path / "run", fakes.FakePolicy(), islands={"count": 3}, evaluations=30)
    turns = [json.loads(line) for line in (run.path / "trajectories.jsonl").read_text().splitlines()]
    assert {turn["island"] for turn in turns} == {0, 1, 2}
