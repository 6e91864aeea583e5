"""`kernevo review` on a run whose candidates are known, with a server that says what it is told to."""

from __future__ import annotations

import json

import pytest
import yaml

from evaluator.types import EvalStatus
from tests.evo.cli_call import call
from tests.evo.run_maker import RunMaker, failed, passed
from tests.policy.fake_server import FakeServer, error, says

pytest.importorskip("openai")

SEED = "x = 1\n"
FAST = "x = 1\ny = 2\n"
CACHING = "CACHE = {}\nx = CACHE\n"
REFUSED = "import time\n"
BROKEN = "x = (1\n"

ACCEPTS = json.dumps({"verdict": "accept", "kind": None, "reason": "Honest.", "evidence": []})
OBJECTS = json.dumps(
    {"verdict": "reject", "kind": "memory_of_earlier_calls", "reason": "It \x1b[2J keeps.", "evidence": ["x = CACHE"]}
)
INVENTS = json.dumps({"verdict": "reject", "kind": "clock", "reason": "It waits.", "evidence": ["sleep(1)"]})


@pytest.fixture
def run(tmp_path):
    """Three that passed, the fastest last, one source twice, one refused for cheating and one for a mistake."""
    maker = RunMaker(tmp_path / "run")
    maker.add(SEED, passed(SEED))
    maker.add(FAST, passed(FAST, speedup=2.0), "c000000")
    maker.add(CACHING, passed(CACHING, speedup=9.0), "c000000")
    maker.add(FAST, passed(FAST, speedup=2.0), "c000002")
    maker.add(REFUSED, failed(REFUSED, EvalStatus.REJECTED_STATIC, "static"), "c000000")
    maker.add(BROKEN, failed(BROKEN, EvalStatus.COMPILE_ERROR, "compile"), "c000000")
    return tmp_path / "run"


@pytest.fixture
def config(tmp_path):
    """Writes a config whose reviewer is behind a server."""

    def write(server: FakeServer):
        policy = {"type": "openai", "model": "tiny", "base_url": server.url, "retries": 0}
        whole = {"task": "softmax", "budget": {"evaluations": 3}, "policy": [{"type": "rule"}, policy]}
        path = tmp_path / "reviewer.yaml"
        path.write_text(yaml.safe_dump(whole))
        return path

    return write


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "reviews" not in path.parts}


def test_passes_and_refusals_for_cheating_are_reviewed_and_the_run_stays_as_it_was(run, config):
    before = files(run)
    with FakeServer([says(ACCEPTS), says(INVENTS), says(OBJECTS), says(ACCEPTS)]) as server:
        outcome = call("review", run, "--config", config(server))
        assert len(server.requests) == 4
    assert outcome.code == 0, outcome.err
    lines = {line.split()[0]: line for line in outcome.out.splitlines() if line.startswith("c0")}
    assert set(lines) == {"c000000", "c000001", "c000002", "c000004"}
    assert "passed" in lines["c000000"]
    assert "no_objection" in lines["c000000"]
    assert "void" in lines["c000001"]
    assert "sleep" not in lines["c000001"]
    assert "objection (memory_of_earlier_calls)" in lines["c000002"]
    assert lines["c000002"].rstrip().endswith("x = CACHE")
    assert "rejected_static" in lines["c000004"]
    assert "\x1b" not in outcome.out
    assert "1 objection" in outcome.out
    assert "agree on 33% of 3 sources" in outcome.out
    assert files(run) == before


def test_a_second_call_asks_nobody(run, config):
    with FakeServer([says(ACCEPTS)] * 4) as server:
        first = call("review", run, "--config", config(server))
        second = call("review", run, "--config", config(server))
        assert len(server.requests) == 4
    assert (first.code, second.code, first.out) == (0, 0, second.out)


def test_only_the_best_are_reviewed_beside_what_was_refused(run, config):
    with FakeServer([says(OBJECTS), says(ACCEPTS)]) as server:
        document = json.loads(call("review", run, "--config", config(server), "--top", 1, "--json").out)
    assert [(row["candidate"], row["outcome"]) for row in document["reviews"]] == [
        ("c000002", "objection"),
        ("c000004", "no_objection"),
    ]
    assert document["outcomes"] == {"no_objection": 1, "objection": 1}
    assert document["agreement"]["only_reviewer_rejects"] == document["agreement"]["only_evaluator_rejects"] == 1
    assert document["schema_version"] == 1


def test_a_run_of_rules_needs_a_config_with_a_model(run):
    outcome = call("review", run)
    assert outcome.code == 2
    assert "no openai policy" in outcome.err
    assert "--config" in outcome.err


def test_a_server_that_is_out_of_order_is_not_asked_about_every_candidate(run, config):
    with FakeServer([error(500, "out of order")] * 4) as server:
        outcome = call("review", run, "--config", config(server))
        assert len(server.requests) == 3
    assert outcome.code == 1
    assert "gave no answer" in outcome.err
    assert "Traceback" not in outcome.err


def test_one_failure_is_shown_and_the_others_are_reviewed(run, config):
    with FakeServer([says(ACCEPTS), error(500, "out of order"), says(ACCEPTS), says(ACCEPTS)]) as server:
        outcome = call("review", run, "--config", config(server))
    assert outcome.code == 0
    assert "failed" in outcome.out
