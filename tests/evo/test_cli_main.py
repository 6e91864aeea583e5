"""The command line as a shell sees it: quick help, exit codes, no tracebacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evaluator.errors import EnvironmentUnusableError, KernevoError, UsageError
from evaluator.version import __version__
from evo.cli import main as entry
from evo.cli.main import COMMANDS
from tests.evo.cli_call import call

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "triton", "optuna", "pydantic", "libcst", "deap", "numpy", "vllm", "trl", "rich", "yaml")


def shell(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        ("import evo", HEAVY),
        ("import evo, evaluator, policy", HEAVY),
        ("import evo.config_file", ("torch", "triton", "optuna", "vllm", "trl")),
    ],
)
def test_importing_loads_nothing_heavy(code, unwanted):
    done = shell("-c", f"{code}\nimport sys\nprint(*sorted(sys.modules))")
    assert done.returncode == 0, done.stderr
    assert not set(unwanted) & set(done.stdout.split())


def test_help_imports_no_command_and_nothing_heavy():
    code = (
        "import sys, evo.cli.main\n"
        "try: evo.cli.main.main(['--help'])\n"
        "except SystemExit as end: code = end.code\n"
        "print(code, *sorted(sys.modules), file=sys.stderr)"
    )
    done = shell("-c", code)
    code, *loaded = done.stderr.split()
    assert code == "0"
    assert not set(HEAVY) & set(loaded)
    assert not {f"evo.cli.{command}" for command in COMMANDS} & set(loaded)
    for command, line in COMMANDS.items():
        assert f"  {command}" in done.stdout
        assert line in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_in_the_words_of_the_overview(command):
    outcome = call(command, "--help")
    assert outcome.code == 0
    assert COMMANDS[command].rstrip(".") in " ".join(outcome.out.split())


def test_public_names_are_loaded_when_first_used():
    import evo
    from evo.campaign import Campaign, CampaignResult
    from evo.run import Run

    assert (evo.Campaign, evo.CampaignResult, evo.Run) == (Campaign, CampaignResult, Run)
    assert {"Campaign", "Run"} <= set(dir(evo))
    with pytest.raises(AttributeError, match="Campain"):
        evo.Campain  # noqa: B018


def test_the_version_is_printed():
    assert call("--version") == (0, f"kernevo {__version__}\n", "")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["hravest"], "Did you mean 'harvest'?"),
        (["qqq"], "no command 'qqq'"),
        (["run"], "Missing argument"),
        (["run", "quickstart", "--jsno"], "No such option"),
        (["harvest", "r", "--out", "d", "--top", "0"], "Invalid value for '--top'"),
        (["tasks", "lits"], "No such command"),
        (["resume", "nowhere"], "nowhere: no such run"),
        (["status", "nowhere"], "nowhere: no such run"),
    ],
)
def test_wrong_usage_leaves_with_2_and_says_what_is_wrong(args, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = call(*args)
    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.out == ""


def test_no_command_prints_the_help_and_leaves_with_2():
    outcome = call()
    assert outcome.code == 2
    assert "Commands:" in outcome.out + outcome.err


def raising(error: BaseException):
    def command(*args, **kwargs):
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KernevoError("it broke", "mend it"), 1),
        (UsageError("it broke", "mend it"), 2),
        (EnvironmentUnusableError("it broke", "mend it"), 4),
    ],
)
def test_a_foreseen_error_is_a_message_and_its_fix(error, code, monkeypatch):
    monkeypatch.delenv("KERNEVO_DEBUG", raising=False)
    monkeypatch.setattr("evo.schema.config_schema", raising(error))
    assert call("schema") == (code, "", "error: it broke\n  fix: mend it\n")


def test_an_unforeseen_error_is_one_line_and_a_saved_traceback(monkeypatch, tmp_path):
    monkeypatch.delenv("KERNEVO_DEBUG", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("evo.schema.config_schema", raising(ZeroDivisionError("deep inside\nsecond line")))
    outcome = call("schema")
    (log,) = (tmp_path / "kernevo").iterdir()
    assert outcome.code == 1
    assert outcome.err.splitlines()[0] == "error: unexpected failure: ZeroDivisionError: deep inside"
    assert str(log) in outcome.err
    assert "Traceback" not in outcome.err
    assert "Traceback (most recent call last)" in log.read_text()
    assert "command: kernevo schema" in log.read_text()


@pytest.mark.parametrize("args", [["--debug", "schema"], ["schema"]])
def test_debugging_shows_the_traceback(args, monkeypatch):
    monkeypatch.setenv("KERNEVO_DEBUG", "" if "--debug" in args else "1")
    monkeypatch.setattr("evo.schema.config_schema", raising(ZeroDivisionError("deep inside")))
    with pytest.raises(ZeroDivisionError):
        call(*args)


def test_a_keyboard_interrupt_leaves_with_130(monkeypatch):
    monkeypatch.setattr("evo.schema.config_schema", raising(KeyboardInterrupt()))
    assert call("schema").code == 130


def test_a_reader_that_stops_early_gets_no_complaint():
    # Longer than a pipe's buffer, so that the writer meets the closed end.
    code = (
        "import evo.schema, evo.cli.main as m\n"
        "evo.schema.config_schema = lambda: {str(i): 'x' * 100 for i in range(20000)}\n"
        "m.main(['schema'])"
    )
    command = f'{sys.executable} -c "{code}" | head -n 1'
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "{\n"
    assert done.stderr == ""


def test_a_pipe_that_breaks_inside_is_no_quiet_end(monkeypatch, tmp_path):
    monkeypatch.delenv("KERNEVO_DEBUG", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("evo.schema.config_schema", raising(BrokenPipeError(32, "Broken pipe")))
    outcome = call("schema")
    assert outcome.code == 1
    assert "a pipe broke" in outcome.err


def test_the_console_script_is_the_module():
    done = shell("-m", "evo.cli.main", "--version")
    assert (done.returncode, done.stdout) == (0, f"kernevo {__version__}\n")
    assert entry.main.__module__ == "evo.cli.main"
