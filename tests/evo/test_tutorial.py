"""The tutorial's commands, word for word, and the FAQ's messages, each brought about."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from evaluator.errors import UsageError
from evaluator.types import EvalStatus
from evo.events import Spent
from evo.journal import TornLineWarning
from evo.run import Run
from evo.run_dir import RunDir
from tests.evo.cli_call import call
from tests.evo.run_maker import RunMaker, failed, passed, prompt

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
FAQ = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")


def blocks(language: str) -> str:
    return "".join(re.findall(rf"```{language}\n(.*?)```", TUTORIAL, re.DOTALL))


@pytest.mark.slow
def test_the_tutorial_can_be_followed_word_for_word_without_a_gpu(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in (("kernevo", "-m evo.cli.main"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
    }
    words = ["bash", "-ec", blocks("sh")]
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=290, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert len(Run.load(tmp_path / "runs" / "first").records()) == 16
    assert (tmp_path / "runs" / "first" / "report.html").is_file()
    assert Run.load(tmp_path / "runs" / "mine").elites(1)[0].speedup > 1


@pytest.mark.parametrize("language", ["gpu", "llm"])
def test_the_other_parts_name_configs_that_would_start(language, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [shlex.split(line) for line in blocks(language).splitlines()]
    for program, command, *words in lines:
        assert program == "python" or call(command, "--help").code == 0
        if command == "run":
            assert call(command, *words, "--dry-run").code == 0


MESSAGES = re.findall(r"^### `(.+)`$", FAQ, re.MULTILINE)


def heading(said: str) -> str | None:
    """The FAQ's heading for what was said."""
    for message in MESSAGES:
        pattern = ".+".join(re.escape(part) for part in message.split("…"))
        if re.search(pattern, said, re.DOTALL):
            return message
    return None


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Runs of every kind, and kernels of two."""
    monkeypatch.chdir(tmp_path)
    good = RunMaker(tmp_path / "runs" / "good")
    good.add("x = 1\n", passed("x = 1\n"))
    good.add("x = 2\n", passed("x = 2\n", 2.0), parent="c000000", answer="{}", messages=prompt("faster"))
    bad = RunMaker(tmp_path / "runs" / "bad", task="matmul")
    bad.add("x = 1\n", failed("x = 1\n", EvalStatus.WRONG_VALUE, "smoke"))
    broken = RunMaker(tmp_path / "runs" / "broken")
    broken.dir.journal.write_bytes(broken.dir.journal.read_bytes().replace(b"softmax", b"softmix"))
    newer = RunMaker(tmp_path / "runs" / "newer")
    newer.say("spent", Newer(tokens=1, dollars=0.0, seconds=1.0))
    head = "import torch\n\nM = 64\n\n\nclass {name}(torch.nn.Module):\n"
    module = head + "    def forward(self, x):\n        return {value}\n"
    Path("cheat.py").write_text(module.format(name="ModelNew", value="torch.softmax(x, -1)"))
    Path("tasks/bare").mkdir(parents=True)
    inputs = "\n\ndef get_inputs():\n    return [torch.randn(M, 8)]\n"
    Path("tasks/bare/reference.py").write_text(module.format(name="Model", value="x * 0.0") + inputs)
    Path("tasks/bare/task.yaml").write_text(
        "description: nothing\ndtype: float32\nworkloads: [{name: a, params: {M: 64}}]\n"
        "check_shapes: [{name: b, params: {M: 4}}]\n"
    )
    return tmp_path


class Newer(Spent):
    """A line of a later version."""

    joules: float = 3.0


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        ("run quickstart --name good", 2, "…: already used; nothing was overwritten"),
        ("run quickstart --set budgett.evaluations=3", 2, "…: budgett: unknown key"),
        (
            "run quickstart --set budget.evaluations=many",
            2,
            "--set budget.evaluations: a whole number is needed, not 'many'",
        ),
        ("evaluate cheat.py --task sofmax", 2, "unknown task '…'"),
        ("run quickstart --name new --set task=tasks/bare", 2, "…: task … has no seed kernel"),
        ("tasks check tasks/bare", 2, "…: quarantined: …"),
        ("evaluate cheat.py --task softmax", 3, "defines no @triton.jit kernel"),
        ("watch nope", 2, "…: no such run"),
        ("show good c000099", 2, "…: no candidate …"),
        ("watch broken", 1, "…: damaged line: …"),
        ("report newer", 1, "…: not what this version writes: …"),
        ("harvest bad --out out", 3, "…: no correct kernel to harvest"),
        ("export good --format trl-grpo --out data", 2, "… turns have modelled timings, which are no measured reward"),
        ("verify tasks", 2, "…: holds no harvest (harvest.json)"),
        ("compare good bad", 2, "… cannot be compared: …"),
        ("serve --host 0.0.0.0", 2, "--host …: a server that other machines can reach needs a token"),
        ("doctor --policy llm", 4, "… cannot be reached: …"),
    ],
)
def test_what_goes_wrong_is_in_the_faq_under_the_words_that_are_said(folder, words, code, expected):
    outcome = call(*words.split())
    assert (outcome.code, heading(outcome.err + outcome.out)) == (code, expected), outcome.err


def test_a_torn_journal_a_busy_run_and_a_missing_package_are_in_the_faq(folder, monkeypatch):
    with Path("runs/good/journal.jsonl").open("ab") as stream:
        stream.write(b'{"crc": "')
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Run.load("runs/good")
    [torn] = [one for one in caught if one.category is TornLineWarning]
    assert heading(str(torn.message)) == "the last line was torn when the run stopped; it is dropped"
    maker = RunMaker(folder / "runs" / "busy")
    maker.dir.lock()
    with pytest.raises(UsageError) as busy:
        RunDir(maker.dir.path).lock()
    assert heading(str(busy.value)) == "…: another process is writing this run"
    monkeypatch.setattr("evo.cli.watch.importlib.util.find_spec", lambda name: None)
    assert heading(call("watch", "good", "--web").err) == "… is not installed"
