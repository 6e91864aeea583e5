"""`kernevo run`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from evo.cli import output
from evo.cli.apps import new_app
from evo.cli.runs import session

app = new_app()


@app.command()
def run(
    config: Annotated[str, typer.Argument(help="Config file (YAML), or a shipped config's name: quickstart.")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one key, e.g. budget.seconds=60.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Folder of the run under runs_dir.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, print the plan, run nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")] = False,
) -> None:
    """Start a campaign from a config file, or do what is left of a suite's problems.

    Progress goes to stderr, the result to stdout. Ctrl-C finishes what is in flight and saves; a second one kills.
    """
    settings = [*(overrides or ()), *([] if name is None else [f"name={json.dumps(name)}"])]
    from evo.config_file import load_config

    if (loaded := load_config(config, settings)).suite is not None:
        from evo.cli.suite import run_suite

        run_suite(loaded, config, dry_run=dry_run, as_json=as_json)
        return
    from evo.campaign import Campaign

    campaign = Campaign.from_yaml(config, settings)
    if not dry_run:
        session(campaign, as_json=as_json)
        return
    from evo.cli.plan import check_plan, plan_of

    check_plan(campaign)
    plan = plan_of(campaign)
    if as_json:
        output.print_json({"plan": plan, "config": campaign.config.model_dump(mode="json")})
    else:
        output.print_facts(plan)
