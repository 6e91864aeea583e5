"""`kernevo watch`: what it shows of a run that goes on, has ended, or was left behind."""

from __future__ import annotations

import io
import json
import threading

import pytest
from rich.console import Console

from evaluator.errors import UsageError
from evaluator.types import EvalStatus
from evo import events
from evo.journal import JournalError
from evo.run import Run
from evo.watch.state import Watcher
from evo.watch.view import sparkline, view
from tests.evo.cli_call import call
from tests.evo.driver import campaign
from tests.evo.run_maker import RunMaker, failed, passed
from tests.evo.test_report import EVIL


@pytest.fixture
def maker(tmp_path):
    return RunMaker(tmp_path / "run")


def screen(watcher, width=100):
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(view(watcher))
    return console.file.getvalue()


def session(event, reason=""):
    return events.Session(event=event, reason=reason, seconds=9.0)


def test_a_watcher_agrees_with_the_run_that_was_read_as_a_whole(tmp_path):
    run = campaign(tmp_path / "one", "start").run().run
    watcher = Watcher(run.path)
    watcher.refresh()
    state, whole = watcher.state, Run.load(run.path)
    assert (state.judged, state.correct) == (60, sum(record.passed for record in whole.records()))
    assert state.best.speedup == whole.elites(1)[0].speedup
    assert state.rise[-1][1] == state.best.speedup
    assert sum(state.verdicts.values()) == sum(one.tried for one in state.operators.values()) == 60
    assert state.generations == len(whole.generations())
    assert watcher.status == whole.status == "finished"


def test_news_are_taken_in_once_and_half_a_line_waits_for_its_end(maker):
    watcher = Watcher(maker.dir.path)
    assert watcher.refresh() == 1
    maker.add("x = 1\n", passed("x = 1\n"))
    assert (watcher.refresh(), watcher.refresh()) == (2, 0)
    whole = maker.dir.journal.read_bytes()
    maker.add("x = 2\n", passed("x = 2\n", 2.0))
    longer = maker.dir.journal.read_bytes()
    maker.dir.journal.write_bytes(longer[: len(whole) + 30])
    assert watcher.refresh() == 0
    maker.dir.journal.write_bytes(longer)
    assert watcher.refresh() == 2
    assert watcher.state.best.id == "c000001"


def test_a_damaged_line_is_named(maker):
    maker.add("x = 1\n", passed("x = 1\n"))
    text = maker.dir.journal.read_bytes()
    maker.dir.journal.write_bytes(text.replace(b'"softmax"', b'"softmix"'))
    with pytest.raises(JournalError, match=r"journal.jsonl:1: damaged line"):
        Watcher(maker.dir.path).refresh()
    assert call("watch", maker.dir.path, "--once").code == 1


def test_the_view_shows_best_verdicts_operators_and_the_latest_candidates(maker):
    seed = maker.add("x = 1\n", passed("x = 1\n"))
    maker.add("x = 2\n", passed("x = 2\n", 2.0), parent=seed)
    maker.add("x = 3\n", failed("x = 3\n", EvalStatus.WRONG_VALUE, "smoke", "3 of 8 values differ"), parent=seed)
    maker.say(events.SPENT, events.Spent(tokens=1234, dollars=0.5, seconds=70.0))
    watcher = Watcher(maker.dir.path)
    watcher.refresh()
    text = screen(watcher)
    for words in ("3 of 9 judged, 2 correct", "best c000001  2.000x modelled (h200)", "wrong_value  1"):
        assert words in text
    for words in ("3 of 8 values differ", "1,234 tokens, $0.5000", "1.000x → 2.000x", "70 s"):
        assert words in text


def test_a_run_that_was_left_behind_says_how_to_continue(maker):
    maker.say(events.SESSION, session("begin"))
    watcher = Watcher(maker.dir.path)
    watcher.refresh()
    assert "crashed" in screen(watcher)
    assert "kernevo resume" in screen(watcher)
    assert "nothing judged yet" in screen(watcher)
    maker.say(events.SESSION, session("end", "interrupted"))
    watcher.refresh()
    assert "interrupted" in screen(watcher)


def test_hostile_text_of_a_run_reaches_no_terminal(maker):
    evil = EVIL + "\n[bold]\x9b31m\t"
    seed = maker.add("x = 1\n", passed("x = 1\n"))
    maker.add("x", failed("x", EvalStatus.COMPILE_ERROR, "compile", evil * 1000), parent=seed, operator=evil)
    watcher = Watcher(maker.dir.path)
    watcher.refresh()
    text = screen(watcher, 160)
    assert not any(letter in text for letter in "\x1b\x9b\u202e\t")
    assert "␛[31m" in text


def test_without_a_terminal_there_is_a_line_for_every_generation_until_the_run_ends(maker, capsys):
    maker.add("x = 1\n", passed("x = 1\n"))
    maker.dir.lock()
    heard = []
    going_on = threading.Thread(target=lambda: heard.append(call("watch", maker.dir.path, "--every", "0.1")))
    going_on.start()
    maker.end_generation()
    maker.say(events.SESSION, session("begin"))
    maker.say(events.SESSION, session("end", "evaluations"))
    going_on.join(60)
    [shown] = heard
    assert shown.code == 0
    assert shown.out.splitlines()[-1].startswith("finished  generation 1  evaluations 1/9  correct 1  best c000000")


def test_watch_prints_json_and_ends(maker):
    maker.add("x = 1\n", passed("x = 1\n"))
    document = json.loads(call("watch", maker.dir.path, "--json").out)
    assert (document["status"], document["evaluations"], document["waiting"]) == ("crashed", 1, 0)
    assert document["best"]["id"] == "c000000"


def test_a_folder_without_a_run_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="holds no run"):
        Watcher(tmp_path)
    assert call("watch", tmp_path).code == 2
    assert "leave out --once" in call("watch", tmp_path, "--web", "--once").err


@pytest.mark.parametrize(
    ("rise", "judged", "letters"),
    [
        ([], 5, ""),
        ([(1, 1.0)], 4, "▁▁▁▁"),
        ([(3, 1.0), (4, 2.0)], 4, "  ▁█"),
        ([(1, 1.0), (50, 1.5), (100, 2.0)], 100, "▁" * 4 + "▅" * 5 + "█"),
    ],
)
def test_the_sparkline_is_empty_before_the_first_correct_kernel_and_rises_with_the_best(rise, judged, letters):
    words = f"  1.000x → {rise[-1][1]:.3f}x" if rise else ""
    assert sparkline(rise, judged, width=10) == letters + words
