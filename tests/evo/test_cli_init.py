"""`kernevo init`: from a user's module to a task that the other commands take."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluator.task import SHIPPED, load_task
from tests.evo.cli_call import call

MODULE = """import torch

N = 96


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(2, N)]
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_module_becomes_a_task_with_its_seed():
    Path("mine.py").write_text(MODULE)
    seed = SHIPPED / "softmax" / "seed.py"
    outcome = call("init", "mine.py", "--seed", seed)
    assert outcome.code == 0, outcome.err
    assert outcome.out == "mine\n"
    assert "kernevo tasks check mine" in outcome.err
    task = load_task("mine")
    assert task.seed_source == seed.read_text()
    assert dict(task.workloads[0].params) == {"N": 96}
    assert call("tasks", "show", "mine").code == 0
    again = call("init", "mine.py")
    assert again.code == 2
    assert "mine: already used; nothing was overwritten" in again.err


@pytest.mark.parametrize(
    ("text", "args", "said"),
    [
        ("def broken(:\n", [], "mine.py:1:12: "),
        ("x = 1\n", [], "defines no Model"),
        ("class Model: ...\ndef get_inputs(): ...\n", ["--seed", "nowhere.py"], "nowhere.py: cannot be read"),
        (None, [], "mine.py: No such file"),
    ],
)
def test_what_cannot_be_a_task_is_a_usage_error_and_leaves_nothing_behind(text, args, said):
    if text is not None:
        Path("mine.py").write_text(text)
    outcome = call("init", "mine.py", *args)
    assert outcome.code == 2
    assert said in outcome.err
    assert not Path("mine").exists()
