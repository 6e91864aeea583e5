"""`kernevo show` on runs whose candidates are known."""

from __future__ import annotations

import json
import subprocess

import pytest

from evaluator.types import EvalStatus
from evo.cli import show
from evo.run import Run
from evo.turns import turns_of_run
from policy.types import Message
from tests.evo.cli_call import call
from tests.evo.driver import campaign
from tests.evo.run_maker import RunMaker, failed, passed

OLD = "x = 1\ny = 2\n"
NEW = "x = 1\ny = 3\n"
LONG = "\n".join(f"line {number}" for number in range(500))
SAMPLING = {"temperature": 0.7, "logprobs": [-1.0, -3.0], "answer_token_ids": [5, 6, 7]}


@pytest.fixture
def run(tmp_path):
    """A seed, a prompted child that passed, one that failed, and one whose text would act on a terminal."""
    maker = RunMaker(tmp_path / "run")
    maker.add(OLD, passed(OLD))
    told = {"messages": (Message(role="system", content="rules"), Message(role="user", content=LONG))}
    child = passed(NEW, speedup=2.0)
    maker.add(NEW, child, "c000000", answer="y should be 3", sampling=SAMPLING, policy="openai", **told)
    wrong = failed(NEW + "z = 1\n", EvalStatus.WRONG_VALUE, "smoke", "3 of 8 values differ")
    wrong = wrong.model_copy(update={"explain": "at [0, 1]: 2.0 instead of 1.0"})
    maker.add(NEW + "z = 1\n", wrong, "c000001", answer="\x1b[2Jwiped", **told)
    return tmp_path / "run"


def test_everything_about_a_candidate_is_shown_and_its_numbers_say_their_kind(run):
    outcome = call("show", run, "c000001")
    assert outcome.code == 0
    for said in ("[system]\nrules", LONG, "y should be 3", "-y = 2\n+y = 3", "2.000x modelled (h200)"):
        assert said in outcome.out
    assert "(shaped, modelled timing)" in outcome.out
    assert "2 values, mean -2" in outcome.out
    assert "3 values" in outcome.out


def test_a_failure_is_shown_with_its_reason_and_its_explanation(run):
    out = call("show", run, "c000002").out
    assert "3 of 8 values differ" in out
    assert "at [0, 1]: 2.0 instead of 1.0" in out
    assert "-0.1" in out.partition("== reward")[2]


def test_the_document_holds_what_was_recorded_and_the_reward_of_the_trajectories(run):
    document = json.loads(call("show", run, "c000001", "--json").out)
    (turn, _) = turns_of_run(Run.load(run))
    assert document["schema_version"] == 1
    assert document["answer"] == turn.answer
    assert document["prompt"] == [message.model_dump() for message in turn.messages]
    assert document["sampling"] == SAMPLING
    assert document["reward"]["total"] == turn.reward
    assert document["reward"]["components"] == turn.reward_components
    assert (document["verdict"]["speedup"], document["verdict"]["timing_kind"]) == (pytest.approx(2.0), "modelled")


@pytest.mark.parametrize("part", ["prompt", "answer", "diff", "verdict", "reward"])
def test_one_part_is_printed_alone(run, part):
    out = call("show", run, "c000001", "--part", part).out
    marks = {"prompt": "line 499", "answer": "y should be 3", "diff": "+y = 3", "verdict": "checks", "reward": "total"}
    assert {name for name, mark in marks.items() if mark in out} == {part}
    document = json.loads(call("show", run, "c000001", "--part", part, "--json").out)
    assert set(document) == {"schema_version", "run", "candidate", part}


def test_an_answer_is_raw_where_it_is_asked_for_alone_and_else_harmless(run):
    assert call("show", run, "c000002", "--part", "answer").out == "\x1b[2Jwiped\n"
    assert "\x1b" not in call("show", run, "c000002").out


def test_only_a_terminal_is_shown_the_beginning_of_a_long_prompt(monkeypatch):
    assert show._shortened(LONG, show.Part.PROMPT) == LONG
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    cut = show._shortened(LONG, show.Part.PROMPT)
    assert cut.count("\n") == show.TERMINAL_LINES
    assert "380 more lines; --part prompt" in cut


def test_the_diff_is_a_patch(run, tmp_path):
    for text, name in ((OLD, "c000000.py"), (OLD.rstrip("\n"), "bare.py")):
        maker = RunMaker(tmp_path / name)
        maker.add(text, passed(text))
        maker.add(NEW, passed(NEW), "c000000")
        target = tmp_path / f"target_{name}"
        target.write_text(text)
        diff = call("show", tmp_path / name, "c000001", "--part", "diff").out
        subprocess.run(["patch", "-s", str(target)], input=diff, text=True, check=True)
        assert target.read_text() == NEW


def test_a_seed_has_no_prompt_and_no_reward_and_all_of_it_is_new(run):
    outcome = call("show", run, "c000000")
    assert "--- /dev/null" in outcome.out
    assert "+x = 1\n+y = 2" in outcome.out
    assert "none: only children of a prompt" in outcome.out
    assert json.loads(call("show", run, "c000000", "--json").out)["reward"] is None


@pytest.mark.parametrize(
    ("wanted", "hint"), [("c000009", "the nearest is c000002"), ("best", "ids are c000000 to c000002")]
)
def test_an_unknown_candidate_is_answered_with_the_nearest(run, wanted, hint):
    outcome = call("show", run, wanted)
    assert outcome.code == 2
    assert hint in outcome.err


def test_every_candidate_of_a_campaign_can_be_shown_with_the_reward_of_its_turn(tmp_path):
    made = campaign(tmp_path / "run", "start").run().run
    rewards = {turn.candidate_id: turn.reward for turn in turns_of_run(made)}
    for record in made.records()[::7]:
        document = json.loads(call("show", made.path, record.id, "--json").out)
        assert (document["reward"] or {}).get("total") == rewards.get(record.id)
