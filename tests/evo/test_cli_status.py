"""`kernevo status`, `harvest`, `report` and `export` on a run made with the fakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evo.run import Run
from tests.evo.cli_call import call
from tests.evo.driver import campaign


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    campaign(folder / "runs" / "one", "start").run()
    return folder


@pytest.fixture(autouse=True)
def _there(made, monkeypatch):
    monkeypatch.chdir(made)


def test_a_run_shows_its_state_verdicts_and_elites():
    run = Run.load("runs/one")
    outcome = call("status", "one")
    assert outcome.code == 0
    assert "finished" in outcome.out
    assert f"{len(run.records())} judged, {sum(record.passed for record in run.records())} correct" in outcome.out
    for record in run.elites(5):
        assert f"{record.id}  {record.speedup:.3f}x modelled (h200)" in " ".join(outcome.out.split()).replace(
            f"{record.id} ", f"{record.id}  "
        )


def test_verdicts_add_up_to_the_evaluations():
    document = json.loads(call("status", "runs/one", "--json").out)
    assert sum(document["verdicts"].values()) == document["evaluations"] == 60
    assert document["verdicts"]["passed"] == document["correct"]
    assert document["best"]["timing_kind"] == "modelled"


def test_all_runs_are_listed_and_a_damaged_one_hides_no_other():
    Path("runs/two").mkdir(exist_ok=True)
    Path("runs/two/journal.jsonl").write_text("nonsense\n")
    Path("runs/two/config.resolved.json").write_text("{}")
    Path("runs/no_run").mkdir(exist_ok=True)
    document = json.loads(call("status", "--json").out)
    states = {Path(run["run"]).name: run["status"] for run in document["runs"]}
    assert states == {"one": "finished", "two": "damaged"}
    table = call("status").out
    assert "damaged" in table
    assert "x modelled (h200)" in table


def test_a_damaged_journal_is_named_with_its_line():
    Path("bad").mkdir(exist_ok=True)
    Path("bad/config.resolved.json").write_text("{}")
    Path("bad/journal.jsonl").write_text("nonsense\n")
    outcome = call("status", "bad")
    assert outcome.code == 1
    assert "bad/journal.jsonl:1: damaged line" in outcome.err


def test_no_runs_yet_is_said_and_no_failure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = call("status")
    assert outcome.code == 0
    assert "no runs yet" in outcome.err
    Path("empty").mkdir()
    assert call("status", "empty").code == 2


def test_a_torn_last_line_is_a_warning_in_plain_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    campaign(tmp_path / "torn", "start").run()
    with Path("torn/journal.jsonl").open("ab") as stream:
        stream.write(b'{"crc": "')
    outcome = call("status", "torn")
    assert outcome.code == 0
    assert outcome.err.startswith("warning: ")
    assert "the last line was torn" in outcome.err


def test_harvest_prints_the_paths_best_first_and_overwrites_nothing(tmp_path):
    out = tmp_path / "best"
    outcome = call("harvest", "one", "--top", "2", "--out", out)
    paths = [Path(line) for line in outcome.out.splitlines()]
    best = Run.load("runs/one").elites(2)
    assert outcome.code == 0
    for path, record in zip(paths, best, strict=True):
        assert f"{record.speedup:.3f}x modelled (h200)" in path.read_text()
    paths[0].write_text("mine\n")
    refused = call("harvest", "one", "--top", "2", "--out", out)
    assert refused.code == 2
    assert "nothing was overwritten" in refused.err
    assert paths[0].read_text() == "mine\n"
    assert call("harvest", "one", "--out", out, "--force").code == 0
    assert paths[0].read_text() != "mine\n"


def test_harvest_and_report_say_as_json_what_they_wrote(tmp_path):
    written = json.loads(call("harvest", "one", "--out", tmp_path / "best", "--json").out)
    assert [Path(path).parent for path in written["kernels"]] == [tmp_path / "best"]
    page = json.loads(call("report", "one", "--out", tmp_path / "page.html", "--json").out)
    assert page["files"] == [str(tmp_path / "page.html")]


def test_a_report_is_written_where_it_is_wanted_and_its_path_printed(tmp_path):
    outcome = call("report", "one", "--out", tmp_path / "page.html")
    assert outcome.code == 0
    assert outcome.out == f"{tmp_path / 'page.html'}\n"
    page = (tmp_path / "page.html").read_text()
    assert Run.load("runs/one").elites(1)[0].id in page
    assert "modelled" in page


def test_an_export_of_modelled_timings_must_be_asked_for(tmp_path):
    wanted = ("export", "one", "--format", "trl-grpo", "--out", tmp_path / "data")
    refused = call(*wanted)
    assert refused.code == 2
    assert "--allow-modelled" in refused.err
    assert not (tmp_path / "data").exists()
    written = json.loads(call(*wanted, "--allow-modelled", "--json").out)
    assert written["rows"] == written["considered"] > 0
    assert written["timing_kinds"] == ["modelled"]
    assert all(Path(path).is_file() for path in written["files"])
    again = call(*wanted, "--allow-modelled")
    assert again.code == 2
    assert "not empty; nothing was overwritten" in again.err
    assert call(*wanted, "--allow-modelled", "--force").code == 0


def test_an_export_works_without_the_derived_trajectory_file(tmp_path):
    Path("runs/one/trajectories.jsonl").unlink()
    outcome = call("export", "one", "--format", "trl-grpo", "--out", tmp_path / "data", "--allow-modelled")
    assert outcome.code == 0
    assert "turns" in outcome.out


def test_an_export_without_a_folder_goes_into_the_first_run():
    outcome = call("export", "one", "--format", "trl-grpo", "--allow-modelled")
    assert outcome.code == 0
    assert [path.name for path in sorted(Path("runs/one/exports/trl-grpo").glob("*.jsonl"))]


def test_an_unknown_format_is_answered_with_the_nearest(tmp_path):
    outcome = call("export", "one", "--format", "trl-gpro", "--out", tmp_path / "data")
    assert outcome.code == 2
    assert "trl-grpo" in outcome.err
