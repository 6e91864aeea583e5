from __future__ import annotations

import json

import pytest

from evaluator.errors import KernevoError, UsageError
from policy.export import export
from policy.exports import trl_dpo
from policy.training import data
from policy.types import Message
from tests.policy.training import world


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ([world.source(split="held_out")], "held-out task softmax is never trained on"),
        ([world.source(), world.source("other", "profile")], "runs r and other are rewarded differently"),
        ([world.source(timing_kind="modelled")], "--allow-modelled"),
        ([world.source(timing_kind="modelled"), world.source("other")], "do not compare"),
    ],
)
def test_turns_that_must_not_be_trained_on_are_refused_in_one_line(sources, words):
    with pytest.raises(UsageError) as refused:
        data.turns_for(sources, world.settings())
    assert words in str(refused.value)
    assert "\n" not in refused.value.message


def test_modelled_turns_are_taken_where_that_is_wanted():
    sources = [world.source(timing_kind="modelled")]
    assert len(data.turns_for(sources, world.settings(allow_modelled=True))) == 6


def test_runs_without_turns_say_so():
    with pytest.raises(KernevoError, match="hold no turn"):
        data.turns_for([data.Source("r", (), "shaped")], world.settings())


def test_sft_takes_elite_steps_once_though_two_runs_hold_them():
    steps = world.turns(3)
    again = [turn.model_copy(update={"run": "other", "group": "g"}) for turn in steps]
    hack = steps[0].model_copy(update={"answer": "{}", "is_hack": True})
    slow = steps[0].model_copy(update={"answer": "[]", "speedup": 1.04})
    rows = data.sft_rows([*steps, *again, hack, slow], world.settings())
    assert [row["completion"][0]["content"] for row in rows] == [turn.answer for turn in steps]
    assert rows[0]["prompt"] == [{"role": "user", "content": "make it fast"}]


def test_sft_without_an_elite_step_says_what_to_do():
    with pytest.raises(KernevoError, match="none of 6 turns is an elite step"):
        data.sft_rows(world.turns(speedup=1.0), world.settings())


def test_dpo_pairs_the_best_child_with_each_worse_sibling():
    steps = world.turns(3)
    elsewhere = steps[0].model_copy(update={"messages": (Message(role="user", content="another"),), "reward": -1.0})
    rows = data.dpo_rows([*steps, elsewhere])
    assert [(row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in rows] == [
        (steps[2].answer, steps[0].answer),
        (steps[2].answer, steps[1].answer),
    ]


def test_dpo_trains_on_the_pairs_that_are_exported_so_that_kernels_about_as_fast_make_none(tmp_path):
    steps = world.turns(3)
    near = steps[1].model_copy(update={"reward": steps[2].reward - trl_dpo.MARGIN / 2})
    turns = [steps[0], near, steps[2]]
    rows = data.dpo_rows(turns)
    assert [row["rejected"][0]["content"] for row in rows] == [steps[0].answer]
    export(turns, "trl-dpo", tmp_path)
    exported = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    assert [{name: row[name] for name in rows[0]} for row in exported] == rows


def test_dpo_takes_a_pair_once_though_two_runs_hold_it():
    steps = world.turns(2)
    again = [turn.model_copy(update={"run": "other"}) for turn in steps]
    assert data.dpo_rows([*steps, *again]) == data.dpo_rows(steps)


@pytest.mark.parametrize("change", [{"status": "wrong_value"}, {"is_hack": True}])
def test_dpo_never_prefers_what_is_wrong_or_a_hack(change):
    steps = world.turns(2)
    bad = steps[1].model_copy(update=change)
    with pytest.raises(KernevoError, match="makes a pair"):
        data.dpo_rows([steps[0], bad])


def test_equal_siblings_make_no_pair():
    with pytest.raises(KernevoError, match="makes a pair"):
        data.dpo_rows(world.turns(reward=0.3))


def test_a_prompt_is_asked_once_however_many_answers_it_had():
    assert data.prompts_of(world.turns()) == [world.PROMPT]


def test_a_prompt_for_values_of_tunables_is_not_asked_for_rewrites():
    assert data.prompts_of(world.turns(sampling={"form": "tunables"})) == []
