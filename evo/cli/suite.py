"""`kernevo run CONFIG` where the config holds a suite."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import typer

from evo.cli import output
from evo.config import CampaignConfig


def run_suite(config: CampaignConfig, source: str, *, dry_run: bool, as_json: bool) -> None:
    """Do the problems that are not done, then print the table. Exit code 130 where Ctrl-C ended it, 3 where no problem
    has a correct kernel."""
    from evo.suite import STATE, Suite

    suite = Suite(config, Path(config.runs_dir) / (config.name or Path(source).stem))
    if dry_run:
        plan = {"suite": str(suite.folder), "problems": suite.problems}
        if as_json:
            output.print_json(plan)
        else:
            output.print_facts({**plan, "problems": "\n".join(suite.problems)})
        return
    suite.run(output.note)
    if as_json:
        output.print_json(json.loads((suite.folder / STATE).read_text(encoding="utf-8")))
    else:
        print(suite.table())
    if suite.interrupted:
        output.note(f"interrupted; go on with: kernevo run {shlex.quote(source)}")
        raise typer.Exit(130)
    if not any(row.state == "correct" for row in suite.rows.values()):
        raise typer.Exit(3)
