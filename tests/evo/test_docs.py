"""The documentation says what the program does."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from evo.cli.main import COMMANDS
from evo.config_keys import all_keys
from evo.docs import PAGE, config_page

COMMAND_PAGES = Path(__file__).parents[2] / "docs" / "commands"


def test_the_committed_config_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == config_page(), "run `python -m evo.docs`"


def test_every_key_has_a_row_with_a_meaning():
    rows = [line for line in config_page().splitlines() if line.startswith("|") and "`" in line]
    for key in all_keys():
        name = key.path.rpartition(".")[2]
        row = next(line for line in rows if line.startswith((f"| `{name}`", f"| **`{name}`**")))
        assert row.rstrip(" |").rpartition("|")[2].strip(), key.path


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_page_that_names_all_its_options(command):
    from importlib import import_module

    page = (COMMAND_PAGES / f"{command}.md").read_text(encoding="utf-8")
    made = typer.main.get_command(import_module(f"evo.cli.{command}").app)
    for leaf in [made, *getattr(made, "commands", {}).values()]:
        for parameter in leaf.params:
            for option in parameter.opts:
                if option.startswith("--") and option not in ("--help", "--install-completion", "--show-completion"):
                    assert option in page, f"{command}.md does not mention {option}"
