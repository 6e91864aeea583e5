from __future__ import annotations

import ast
import json
import os
import shlex
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.errors import EnvironmentUnusableError, UsageError
from evaluator.source_hash import ast_hash, structure_hash
from evaluator.types import EvalStatus
from evo.harvest import NothingCorrectError, harvest, header
from policy.types import RewriteStep
from tests.evo.cli_call import call
from tests.evo.driver import campaign
from tests.evo.fakes import SEED
from tests.evo.run_maker import RunMaker, failed, passed


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return campaign(tmp_path_factory.mktemp("work") / "one", "start").run().run


@pytest.fixture
def maker(tmp_path):
    return RunMaker(tmp_path / "run")


def test_each_elite_becomes_a_file_named_by_task_rank_and_source(run, tmp_path):
    paths = harvest(run, 3, tmp_path / "out")
    shas = [record.candidate.source_sha[:8] for record in run.elites(3)]
    assert [path.name for path in paths] == [f"softmax_{rank}_{sha}.py" for rank, sha in enumerate(shas, start=1)]


def test_a_harvested_file_is_the_judged_source_under_comments(run, tmp_path):
    for path, record in zip(harvest(run, 3, tmp_path), run.elites(3), strict=True):
        text = path.read_text()
        source = run.source(record.candidate.source_sha).text
        assert text.endswith(source)
        above = text.removesuffix(source)
        assert all(line.startswith("#") or not line for line in above.splitlines())
        assert ast_hash(text) == record.candidate.ast_hash
        assert structure_hash(text) == record.candidate.structure


def test_the_header_says_how_fast_how_sure_and_where_from(run, tmp_path):
    [path] = harvest(run, 1, tmp_path)
    best = run.elites(1)[0]
    text = path.read_text()
    assert f"# softmax: {best.speedup:.3f}x modelled (h200) over the task's seed kernel" in text
    assert "passed, 3 of 3 checks passed" in text
    assert f"candidate {best.id}, seed 11" in text
    for step in best.candidate.rewrites:
        assert f"grow(step={step.args['step']})" in text
    assert f"reproduce: kernevo evaluate {path} --task softmax --target h200" in text


@pytest.mark.parametrize(
    ("evaluator", "target", "settings"),
    [
        ({"type": "cpu", "target": "a100"}, "a100", {"type": "cpu", "target": "a100"}),
        ({"type": "gpu"}, "NVIDIA H200", {"type": "gpu", "target": "h200", "baseline": "best"}),
        (
            {"type": "gpu", "target": "h100", "baseline": "eager"},
            "NVIDIA H100 80GB HBM3",
            {"type": "gpu", "target": "h100", "baseline": "eager"},
        ),
    ],
    ids=["cpu", "gpu", "gpu with settings"],
)
def test_the_command_in_a_file_judges_it_as_the_run_did(monkeypatch, tmp_path, evaluator, target, settings):
    asked = []
    judged = passed(SEED).model_copy(update={"target": target})

    def create(given, task):
        asked.append(given)
        return nullcontext(SimpleNamespace(evaluate=lambda jobs: [(jobs[0], judged)]))

    maker = RunMaker(tmp_path / "run", **evaluator)
    maker.add(SEED, judged)
    [path] = harvest(maker.load(), 1, tmp_path / "out")
    [line] = [line for line in path.read_text().splitlines() if line.startswith("# reproduce: ")]
    command = line.removeprefix("# reproduce: ")
    assert json.loads((tmp_path / "out" / "harvest.json").read_text())["elites"][0]["reproduce"] == command
    monkeypatch.setattr("evaluator.backends.create", create)
    program, *words = shlex.split(command)
    assert (program, call(*words).code) == ("kernevo", 0)
    assert settings.items() <= asked[0].items()


def test_the_json_beside_holds_the_same_facts(run, tmp_path):
    harvest(run, 2, tmp_path)
    facts = json.loads((tmp_path / "harvest.json").read_text())
    best = facts["elites"][0]
    assert [elite["rank"] for elite in facts["elites"]] == [1, 2]
    assert best["speedup"] == pytest.approx(run.elites(1)[0].speedup)
    assert best["timing_kind"] == "modelled"
    assert best["lineage"][0] == "c000000"
    assert best["policies"] == ["fake 0"]
    assert best["versions"]["triton"]


def test_harvesting_twice_changes_nothing_and_needs_no_force(run, tmp_path):
    before = {path: path.read_bytes() for path in harvest(run, 3, tmp_path)}
    assert {path: path.read_bytes() for path in harvest(run, 3, tmp_path)} == before


def test_a_different_file_of_the_same_name_is_kept_unless_forced(run, tmp_path):
    [path] = harvest(run, 1, tmp_path)
    path.write_text("mine\n")
    with pytest.raises(UsageError, match="nothing was overwritten"):
        harvest(run, 1, tmp_path)
    assert path.read_text() == "mine\n"
    harvest(run, 1, tmp_path, force=True)
    assert "ModelNew" in path.read_text()


def test_a_forced_harvest_removes_what_is_no_elite_any_more_but_never_a_users_file(run, tmp_path):
    first, second, third = harvest(run, 3, tmp_path)
    third.write_text("# edited by hand\n")
    own = tmp_path / "own.py"
    own.write_text("mine\n")
    assert harvest(run, 1, tmp_path, force=True) == [first]
    assert not second.exists()
    assert third.exists()
    assert own.exists()


def test_a_manipulated_harvest_json_cannot_have_files_elsewhere_removed(run, tmp_path):
    out = tmp_path / "out"
    harvest(run, 1, out)
    victim = tmp_path / "victim.py"
    victim.write_text("x")
    sha = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    (out / "harvest.json").write_text(json.dumps({"elites": [{"file": "../victim.py", "file_sha": sha}]}))
    harvest(run, 1, out, force=True)
    assert victim.exists()


def test_a_run_without_a_correct_candidate_ends_with_exit_code_three(maker, tmp_path):
    maker.add("x = 1\n", failed("x = 1\n", EvalStatus.WRONG_VALUE, "smoke"))
    with pytest.raises(NothingCorrectError, match="no correct kernel") as caught:
        harvest(maker.load(), 1, tmp_path / "out")
    assert caught.value.exit_code == 3
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_an_environment_error(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentUnusableError, match="--out"):
        harvest(run, 1, tmp_path / "file" / "out")


SOURCES = {
    "with a docstring and a future import": '"""Doc."""\nfrom __future__ import annotations\nx = 1\n',
    "with Windows line ends": "x = 1\r\ny = 2\r\n",
    "without a last line end": "x = 1",
    "with other alphabets": "x = 'é 漢字 🚀'\n",
    "with an indented first comment": "   # odd\nx = 1\n",
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_odd_sources_keep_their_program_and_bytes(maker, tmp_path, source):
    maker.add(source, passed(source))
    [path] = harvest(maker.load(), 1, tmp_path / "out")
    data = path.read_bytes()
    assert data.endswith(source.encode())
    assert ast.dump(ast.parse(data)) == ast.dump(ast.parse(source))


def test_line_breaks_in_untrusted_names_do_not_end_the_comment(maker, tmp_path):
    evil = RewriteStep(name="a\nimport os\r\x0b\u2028os.abort()", args={"b\nc": "d\n\x1b[31m"})
    maker.add("x = 1\n", passed("x = 1\n"), rewrites=(evil,))
    [path] = harvest(maker.load(), 1, tmp_path / "out")
    assert "\x1b" not in path.read_text()
    assert ast.unparse(ast.parse(path.read_bytes())) == "x = 1"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
def test_whatever_the_facts_hold_the_header_is_comments_only(text):
    facts = {
        **dict.fromkeys(
            ("task", "target", "baseline", "verdict", "run", "candidate", "reproduce", "hardware", "licence"), text
        ),
        **{
            "timing_kind": "modelled",
            "speedup": 1.0,
            "checks_passed": 1,
            "checks_total": 1,
            "seed": 0,
            "interval": None,
        },
        "workloads": {text: {"median_ms": 1.0, "baseline_ms": 1.0, "speedup": 1.0}},
        "config": {text: 1},
        "policies": [text],
        "versions": {text: text},
        "rewrites": [{"name": text, "args": {text: text}}],
    }
    assert ast.parse(header(facts) + "x = 1\n").body[0].lineno > 1
    assert len(ast.parse(header(facts) + "x = 1\n").body) == 1


def test_a_harvested_file_does_not_depend_on_the_hash_seed(run, tmp_path):
    code = (
        "import sys; from pathlib import Path; from evo.run import Run; from evo.harvest import harvest;"
        "print(harvest(Run.load(sys.argv[1]), 3, Path('out'), force=True)[0].read_text())"
    )
    found = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()}
        words = [sys.executable, "-c", code, str(run.path.resolve())]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        found.add(done.stdout)
    assert len(found) == 1
