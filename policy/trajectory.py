"""Turns: what learning stores of a run, and the file that holds them.

A turn is one prompt, one answer, one judged child. Children of one parent under one identical prompt, from one
version of one policy, form a group, whatever generation they were born in. `trajectories.jsonl` is derived data: it can
be deleted and written again from the run's journal.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from evaluator.errors import KernevoError
from evaluator.source_hash import ast_hash
from evaluator.types import Evaluation, Frozen, Split
from policy.quality import quality_of
from policy.reward import RewardInput, RewardSettings, input_of, reward_of
from policy.types import Message, Turn


class JudgedChild(Frozen):
    """A judged candidate as the search hands it over, prompted or not. Sources are texts, not hashes."""

    candidate_id: str
    parent_ids: tuple[str, ...] = ()
    """First parent first: the one whose file the prompt showed."""
    generation: int
    operator: str
    island: int = 0
    source: str
    program: str = ""
    """The source's normalised AST hash where the search knows it."""
    parent_source: str = ""
    messages: tuple[Message, ...] = ()
    """The prompt; a child without one (a seed, a tuned config) makes no turn but counts in lineages."""
    answer: str = ""
    evaluation: Evaluation
    parent_speedup: float | None = None
    """The first parent's; None where it failed."""
    sampling: Mapping[str, Any] = Field(default_factory=dict)
    policy: str = "rule"
    policy_version: str = "0"


class RunMeta(Frozen):
    """What every turn of a run shares."""

    run: str
    task: str
    split: Split = "train"
    seeds: Mapping[str, int] = Field(default_factory=dict)
    versions: Mapping[str, str] = Field(default_factory=dict)


class TornTurnWarning(UserWarning):
    """The last line of a trajectory file was half written when a process died."""


class _Place(NamedTuple):
    """Where a candidate stands in its family."""

    lineage: str
    """The first ancestor below the seed: what an export caps by. A child of the seed starts its own lineage."""
    prompted: int
    """Answers to prompts among it and its first parents."""


def turns_of(children: Iterable[JudgedChild], meta: RunMeta, reward: RewardSettings | None = None) -> Iterator[Turn]:
    """The turns of a run, one by one. `children` are all its judged candidates in the order of birth.

    Children without a prompt or answer and those our own harness failed on make no turn: nothing is known of them.
    """
    programs: set[str] = set()
    places: dict[str, _Place] = {}
    for child in children:
        program = child.program or ast_hash(child.source)
        place = places[child.candidate_id] = _place(child, places)
        if _prompted(child) and not child.evaluation.status.blames_harness:
            given = _reward_input(child, program, repeated=program in programs)
            yield _turn(child, meta, given, reward or RewardSettings(), place)
        programs.add(program)


def _prompted(child: JudgedChild) -> bool:
    return bool(child.messages and child.answer)


def _place(child: JudgedChild, known: Mapping[str, _Place]) -> _Place:
    parent = known.get(child.parent_ids[0], _Place("", 0)) if child.parent_ids else _Place("", 0)
    lineage = parent.lineage or child.candidate_id if child.parent_ids else ""
    return _Place(lineage, parent.prompted + _prompted(child))


def _reward_input(child: JudgedChild, program: str, *, repeated: bool) -> RewardInput:
    return input_of(
        child.evaluation,
        unchanged=bool(child.parent_source) and program == ast_hash(child.parent_source),
        duplicate=repeated,
        quality=quality_of(child.source).total,
    )


def _turn(child: JudgedChild, meta: RunMeta, given: RewardInput, settings: RewardSettings, place: _Place) -> Turn:
    evaluation, reward = child.evaluation, reward_of(given, settings)
    sampling = dict(child.sampling)
    tokens = {name: sampling.pop(name, None) for name in ("prompt_token_ids", "answer_token_ids", "logprobs")}
    return Turn(
        **meta.model_dump(),
        **tokens,
        group=group_of(child),
        turn=place.prompted - 1,
        candidate_id=child.candidate_id,
        parent_ids=child.parent_ids,
        lineage=place.lineage,
        operator=child.operator,
        island=child.island,
        generation=child.generation,
        messages=child.messages,
        answer=child.answer,
        sampling=sampling,
        policy=child.policy,
        policy_version=child.policy_version,
        source=child.source,
        source_sha=evaluation.source_sha,
        ast_hash=ast_hash(child.source),
        parent_source=child.parent_source,
        status=str(evaluation.status),
        reason=evaluation.reason,
        verdicts={stage.name: str(stage.status) for stage in evaluation.stages},
        is_hack=given.hack,
        timing_kind=evaluation.kind,
        speedup=evaluation.speedup,
        speedup_low=given.speedup_low,
        parent_speedup=child.parent_speedup,
        timings=evaluation.timings,
        coverage=given.coverage,
        reward=reward.total,
        reward_components=reward.components,
        reward_type=settings.label,
        target=evaluation.target,
        evaluator=f"{evaluation.evaluator} {evaluation.evaluator_version}".rstrip(),
    )


def group_of(child: JudgedChild) -> str:
    """`<parent>-<8 hex digits of prompt, policy and its version>`."""
    prompt = [message.model_dump() for message in child.messages]
    payload = json.dumps([prompt, child.policy, child.policy_version])
    parent = child.parent_ids[0] if child.parent_ids else "none"
    return f"{parent}-{hashlib.sha256(payload.encode()).hexdigest()[:8]}"


def read(path: Path) -> list[Turn]:
    """All turns of a file. A torn last line is dropped with TornTurnWarning; other damage raises KernevoError."""
    return list(stream(path))


def stream(path: Path) -> Iterator[Turn]:
    """The turns of a file one by one, as `read` gives them."""
    for number, line in enumerate(_lines(path), start=1):
        if not line.endswith(b"\n"):
            warnings.warn(f"{path}:{number}: the last line is torn; it is dropped", TornTurnWarning, stacklevel=2)
            return
        yield _decode(path, number, line)


def encode(turn: Turn) -> bytes:
    """One line with its newline. ASCII, so that any text survives, unpaired surrogates too."""
    return json.dumps(turn.model_dump(mode="json")).encode() + b"\n"


def decode(line: bytes) -> Turn:
    """The turn of one line that `encode` wrote. Raises ValueError for anything else."""
    return Turn.model_validate(json.loads(line))


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as stream:
            yield from stream
    except OSError as error:
        raise KernevoError(f"{path}: cannot be read: {error.strerror}", "give a run's trajectories.jsonl") from error


def _decode(path: Path, number: int, line: bytes) -> Turn:
    try:
        return decode(line)
    except (ValueError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise KernevoError(
            f"{path}:{number}: damaged line: {first}",
            "delete the file: it is derived from the run's journal and written again from it",
        ) from None
