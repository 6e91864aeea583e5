"""`kernevo show`."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evo.cli import complete, output, verdict
from evo.cli.apps import new_app
from evo.cli.runs import find_run

if TYPE_CHECKING:
    from evo.candidate import Record
    from evo.run import Run
    from policy.types import Turn

app = new_app()

TERMINAL_LINES = 120
"""Lines of a prompt, an answer or a diff that a terminal is shown of the whole; nothing else is cut."""


class Part(StrEnum):
    """What `--part` prints alone."""

    PROMPT = "prompt"
    ANSWER = "answer"
    DIFF = "diff"
    VERDICT = "verdict"
    REWARD = "reward"


@app.command()
def show(
    run: complete.RunArgument,
    candidate: Annotated[str, typer.Argument(help="A candidate's id, e.g. c000042.")],
    part: Annotated[Part | None, typer.Option("--part", help="Print only this, as it is and whole.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show one candidate: prompt, answer, diff, verdict, reward.

    Reads only, so it may be called beside a running campaign.
    """
    folder = find_run(run)
    from evo.run import Run
    from evo.turns import turn_of

    loaded = Run.load(folder)
    record = loaded.record(candidate)
    turn = turn_of(loaded, candidate)
    if as_json:
        document = document_of(loaded, record, turn)
        output.print_json(document if part is None else {key: document[key] for key in ("run", "candidate", part)})
    elif part is not None:
        _print_part(part, loaded, record, turn)
    else:
        _print_all(loaded, record, turn)


def document_of(run: Run, record: Record, turn: Turn | None) -> dict[str, Any]:
    """What `show --json` prints."""
    candidate, evaluation = record.candidate, record.evaluation
    derived = {"speedup": evaluation.speedup, "latency_ms": evaluation.latency_ms, "timing_kind": evaluation.kind}
    return {
        "run": str(run.path),
        "candidate": record.id,
        "parents": list(candidate.parent_ids),
        "generation": candidate.generation,
        "operator": candidate.operator,
        "policy": candidate.policy,
        "policy_version": candidate.policy_version,
        "explanation": candidate.explanation,
        "config": dict(candidate.config),
        "rewrites": [step.model_dump(mode="json") for step in candidate.rewrites],
        "prompt": [message.model_dump() for message in candidate.messages],
        "answer": candidate.answer,
        "sampling": dict(candidate.sampling),
        "source": run.source(candidate.source_sha).text,
        "diff": diff_of(run, record),
        "verdict": {**derived, **evaluation.model_dump(mode="json")},
        "reward": None if turn is None else _reward_document(run, turn),
    }


def _reward_document(run: Run, turn: Turn) -> dict[str, Any]:
    return {
        "type": run.config.reward.type,
        "total": turn.reward,
        "components": dict(turn.reward_components),
        "timing_kind": turn.timing_kind,
    }


def diff_of(run: Run, record: Record) -> str:
    """Unified diff from the first parent's file to the candidate's, one that `patch` applies; all of it for a seed."""
    parents = record.candidate.parent_ids
    old = run.source(run.record(parents[0]).candidate.source_sha).text if parents else ""
    new = run.source(record.candidate.source_sha).text
    named = (f"{parents[0]}.py" if parents else "/dev/null", f"{record.id}.py")
    lines = difflib.unified_diff(_lines(old), _lines(new), *named)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    # Not splitlines: a form feed or U+2028 ends no line of a Python file.
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + [last] * bool(last)


def _prompt_text(record: Record) -> str:
    return "\n\n".join(f"[{message.role}]\n{message.content}" for message in record.candidate.messages)


def _print_part(part: Part, run: Run, record: Record, turn: Turn | None) -> None:
    if part is Part.VERDICT:
        _print_verdict(record)
    elif part is Part.REWARD:
        output.print_facts(_reward_facts(run, turn))
    else:
        text = _text_of(part, run, record)
        # Raw for programs; a terminal would obey what the text holds.
        _print(_visible(text) if sys.stdout.isatty() else text)


def _text_of(part: Part, run: Run, record: Record) -> str:
    if part is Part.PROMPT:
        return _prompt_text(record)
    return record.candidate.answer if part is Part.ANSWER else diff_of(run, record)


def _print(text: str) -> None:
    # An unpaired surrogate, which a source may hold, has no bytes of its own.
    safe = text.encode("utf-8", "backslashreplace").decode()
    print(safe, end="" if safe.endswith("\n") or not safe else "\n")


def _visible(text: str) -> str:
    from evo.report.text import visible

    return visible(text)


def _print_all(run: Run, record: Record, turn: Turn | None) -> None:
    candidate = record.candidate
    output.print_facts(
        {
            "run": run.path,
            "candidate": record.id,
            "parents": ", ".join(candidate.parent_ids) or "none",
            "generation": candidate.generation,
            "operator": candidate.operator,
            "policy": f"{candidate.policy} {candidate.policy_version}" if candidate.answer else "none",
            "idea": _visible(candidate.explanation) or "none",
        }
    )
    parent = candidate.parent_ids[0] if candidate.parent_ids else "nothing"
    titles = {Part.PROMPT: "prompt", Part.ANSWER: "answer", Part.DIFF: f"diff against {parent}"}
    for part, title in titles.items():
        print(f"\n== {title}")
        _print(_shortened(_visible(_text_of(part, run, record)), part) or "none")
    print("\n== verdict")
    _print_verdict(record)
    print("\n== reward")
    output.print_facts(_reward_facts(run, turn))
    print("\n== sampling")
    output.print_facts(dict(sampling_facts(candidate.sampling)) or {"none": "recorded"})


def _shortened(text: str, part: Part) -> str:
    lines = text.split("\n")
    if not sys.stdout.isatty() or len(lines) <= TERMINAL_LINES:
        return text
    left = len(lines) - TERMINAL_LINES
    return "\n".join([*lines[:TERMINAL_LINES], f"… {left} more lines; --part {part} prints them all"])


def _print_verdict(record: Record) -> None:
    evaluation = record.evaluation
    output.print_facts({name: _visible(str(value)) for name, value in verdict.facts_of(evaluation).items()})
    verdict.print_tables(evaluation)
    if evaluation.explain:
        print()
        _print(_visible(evaluation.explain))


def _reward_facts(run: Run, turn: Turn | None) -> Mapping[str, object]:
    if turn is None:
        return {"total": "none: only children of a prompt whose judging worked are rewarded"}
    kind = f", {turn.timing_kind} timing" if turn.timing_kind else ""
    parts = {name: f"{value:+.4g}" for name, value in turn.reward_components.items()}
    return {"total": f"{turn.reward:+.4g} ({run.config.reward.type}{kind})", **parts}


def sampling_facts(sampling: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What was recorded of the sampling, lists as their length, and as their mean where they hold numbers only."""
    for name, value in sampling.items():
        if not isinstance(value, Sequence) or isinstance(value, str):
            yield _visible(name), _visible(str(value))
            continue
        shown = f"{len(value)} values"
        if (
            name in ("logprobs", "model_logprobs")
            and value
            and all(isinstance(number, int | float) for number in value)
        ):
            shown += f", mean {sum(value) / len(value):.4g}"
        yield _visible(name), shown
