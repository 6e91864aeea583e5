"""TAB in a shell: commands, options, runs and tasks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def offered(words: str, cwd, shell: str = "bash") -> list[str]:
    """What the shell would offer behind `words`; a blank at the end begins a new word."""
    typed = words.split(" ")
    environment = {
        **os.environ,
        "PYTHONPATH": os.getcwd(),
        "_KERNEVO_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(typed) - 1),
    }
    code = "import sys; sys.argv[0] = 'kernevo'; from evo.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture
def folder(tmp_path):
    for name in ("first", "second"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "journal.jsonl").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("kernevo wat", ["watch"]),
        ("kernevo re", ["resume", "review", "report"]),
        ("kernevo watch f", ["first"]),
        ("kernevo compare first s", ["second"]),
        ("kernevo evaluate k.py --task soft", ["softmax"]),
        ("kernevo harvest --fo", ["--force"]),
        ("kernevo nonsense x", []),
    ],
)
def test_tab_completes_commands_options_runs_and_tasks(folder, words, expected):
    assert offered(words, folder) == expected


def test_where_there_are_no_runs_nothing_is_offered(tmp_path):
    assert offered("kernevo watch ", tmp_path) == []


def test_the_script_for_a_shell_can_be_printed(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    code = "import sys; sys.argv[0] = 'kernevo'; from evo.cli.main import main; main(['--show-completion', 'bash'])"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "_KERNEVO_COMPLETE=complete_bash" in done.stdout
