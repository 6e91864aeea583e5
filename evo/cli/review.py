"""`kernevo review`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evaluator.errors import UsageError
from evo.cli import complete, output
from evo.cli.apps import new_app
from evo.cli.runs import find_run

if TYPE_CHECKING:
    from evo.candidate import Record
    from evo.config import CampaignConfig, OpenAIPolicyConfig
    from evo.run import Run
    from policy.review import Review, Reviewer
    from policy.tool_chat import Chat

app = new_app()

FAILURES = 3
"""Reviews without an answer in a row, after which the server is asked no more."""


@app.command()
def review(
    run: complete.RunArgument,
    config: Annotated[
        str | None,
        typer.Option("--config", help="A config whose first openai policy reviews; the run's own else."),
    ] = None,
    top: Annotated[int | None, typer.Option("--top", min=1, help="Of those that passed, only the K best.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Let a second model look for cheating in a run's candidates.

    Changes no verdict and nothing else in the run; answers are kept in its folder reviews/.
    """
    folder = find_run(run)
    from evo.run import Run
    from policy.review import Reviewer

    loaded = Run.load(folder)
    chosen = chosen_records(loaded, top)
    with chat_of(reviewing_policy(loaded, config)) as chat:
        reviewer = Reviewer(chat, folder)
        reviews = list(_reviews(loaded, chosen, reviewer))
    if as_json:
        output.print_json(_document(loaded, reviewer, reviews))
    else:
        _print(reviewer, reviews)
    if len(reviews) < len(chosen):
        output.note(f"error: {chat.model} gave no answer: {reviews[-1][1].reason}")
        output.note("`kernevo doctor --policy CONFIG` looks at the server; reviews that were made are kept")
        raise typer.Exit(1)


def reviewing_policy(run: Run, config: str | None) -> OpenAIPolicyConfig:
    """The first openai policy of `config`, or of the run's own. Raises UsageError when there is none."""
    from evo.config import OpenAIPolicyConfig
    from evo.config_file import load_config

    given: CampaignConfig = run.config if config is None else load_config(config)
    for policy in given.policies:
        if isinstance(policy, OpenAIPolicyConfig):
            return policy
    where = config or f"{run.path}: the run's own config"
    raise UsageError(
        f"{where} has no openai policy, and a reviewer is one",
        "give --config CONFIG with `policy: {type: openai, model: NAME, base_url: URL}`, e.g. configs/llm.yaml",
    )


def chosen_records(run: Run, top: int | None) -> list[Record]:
    """One record of each source: those that passed (the `top` best), and those refused for cheating or suspicion."""
    from evaluator.types import EvalStatus

    first: dict[str, Record] = {}
    for record in run.records():
        first.setdefault(record.candidate.source_sha, record)
    passed = [record for record in first.values() if record.passed]
    if top is not None:
        passed = sorted(passed, key=lambda record: -(record.speedup or 0.0))[:top]
    refused = [
        record
        for record in first.values()
        if record.evaluation.status.is_hack or record.evaluation.status is EvalStatus.SUSPICIOUS
    ]
    return passed + refused


@contextmanager
def chat_of(policy: OpenAIPolicyConfig) -> Iterator[Chat]:
    """The policy's model as a chat; its connections are closed at the end."""
    from evo.build import openai_settings, token_counter
    from policy.loop_thread import LoopThread
    from policy.model_chat import ModelChat
    from policy.openai_client import OpenAIClient

    tokens = token_counter(policy)
    client = OpenAIClient(openai_settings(policy))
    loop = LoopThread("kernevo-review")
    try:
        yield ModelChat(client, loop, max_tokens=policy.max_tokens, tokens=tokens, seed=0)
    finally:
        loop.close(client.close())
        tokens.close()


def _reviews(run: Run, records: Sequence[Record], reviewer: Reviewer) -> Iterator[tuple[Record, Review]]:
    """The reviewer's word on each; ends early where the server has gone."""
    failed = 0
    for number, record in enumerate(records, start=1):
        made = reviewer.compare(run.source(record.candidate.source_sha), run.task, record.evaluation)
        output.note(f"{number}/{len(records)}  {record.id}  {made.outcome}")
        yield record, made
        failed = failed + 1 if made.outcome == "failed" else 0
        if failed == FAILURES:
            return


def _document(run: Run, reviewer: Reviewer, reviews: Sequence[tuple[Record, Review]]) -> dict[str, Any]:
    agreement = reviewer.agreement()
    rows = [
        {"candidate": record.id, "status": str(record.evaluation.status), **made.model_dump(mode="json")}
        for record, made in reviews
    ]
    return {
        "run": str(run.path),
        "reviews": rows,
        "outcomes": reviewer.counts(),
        "agreement": {**agreement.model_dump(), "share": agreement.share, "kappa": agreement.kappa},
    }


def _print(reviewer: Reviewer, reviews: Sequence[tuple[Record, Review]]) -> None:
    rows = [(record.id, record.evaluation.status, _word(made), _evidence(made)) for record, made in reviews]
    output.print_table(["candidate", "evaluator", "reviewer", "evidence"], rows)
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in reviewer.counts().items())
    output.print_facts({"reviews": outcomes or "none: no candidate passed or was refused for cheating"})
    print(reviewer.agreement().line())


def _word(made: Review) -> str:
    from evo.report.text import visible

    said = f"{made.outcome} ({made.kind})" if made.rejects else made.outcome
    return visible(f"{said}: {made.reason}" if made.reason and made.outcome != "no_objection" else said)


def _evidence(made: Review) -> str:
    from evo.report.text import visible

    lines = [line.strip() for quote in made.evidence for line in quote.split("\n") if line.strip()]
    return visible(lines[0]) if lines and made.rejects else ""
