"""The replay policy: gives the answers that another run recorded. Needs no model and no rewriting."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from evaluator.source_hash import ast_hash
from evaluator.types import KernelSource, Task
from policy.answers.errors import AnswerError
from policy.answers.tunables import read_tuning
from policy.rewrites import RewriteContext, RewriteError, apply_steps
from policy.trajectory import read
from policy.types import Proposal, ProposalRequest, RewriteStep, Turn

_STEPS = TypeAdapter(tuple[RewriteStep, ...])

Key = tuple[str, str]
"""Normalised AST hash of the parent, and the operator."""


class ReplayPolicy:
    """Answers a request with what was recorded for the same parent program and operator, in the order of birth.

    Each turn is given once; those whose program the request calls taken are passed over, so that a resumed run goes
    on behind what it had. A parent that the recorded run never asked about has no children.
    """

    name = "replay"
    deterministic = False

    def __init__(self, turns: Iterable[Turn]) -> None:
        self._open: dict[Key, list[Turn]] = {}
        for turn in sorted(turns, key=lambda turn: (turn.generation, len(turn.candidate_id), turn.candidate_id)):
            self._open.setdefault((ast_hash(turn.parent_source), turn.operator), []).append(turn)

    @classmethod
    def from_file(cls, path: str | Path) -> ReplayPolicy:
        """Replay a run's trajectories.jsonl. Raises KernevoError naming file and line when it cannot be read."""
        return cls(read(Path(path)))

    def propose(self, requests: Sequence[ProposalRequest]) -> list[list[Proposal]]:
        """Up to `count` recorded children per request; fewer where none are left."""
        return [self._children(request) for request in requests]

    def close(self) -> None:
        """Nothing to release."""

    def _children(self, request: ProposalRequest) -> list[Proposal]:
        children: list[Proposal] = []
        for parent in request.parents:
            program = ast_hash(parent.source.text)
            turns = self._open.get((program, request.operator), [])
            new = [turn for turn in turns if turn.ast_hash != program and turn.ast_hash not in request.taken]
            fitting = new[: request.count - len(children)]
            for turn in fitting:
                turns.remove(turn)
                children.append(_proposal(turn, parent.source.text, request.task))
        return children


def _proposal(turn: Turn, parent: str, task: Task) -> Proposal:
    tokens = {name: getattr(turn, name) for name in ("prompt_token_ids", "answer_token_ids", "logprobs")}
    return Proposal(
        source=KernelSource(text=turn.source),
        operator=turn.operator,
        rewrites=_rewrites(turn, parent, task),
        tunables=_tunables(turn, parent),
        explanation=f"replayed: {turn.candidate_id} of {turn.run}",
        policy=ReplayPolicy.name,
        policy_version=f"{turn.policy} {turn.policy_version}",
        messages=turn.messages,
        answer=turn.answer,
        sampling={**turn.sampling, **{name: list(value) for name, value in tokens.items() if value is not None}},
    )


def _rewrites(turn: Turn, parent: str, task: Task) -> tuple[RewriteStep, ...]:
    """The steps of a structured answer, where they lead from the parent at hand to the recorded child."""
    try:
        steps = _STEPS.validate_python(json.loads(turn.answer)["steps"])
        reached = apply_steps(parent, steps, RewriteContext.of_task(task))
    except (ValueError, KeyError, TypeError, ValidationError, RewriteError):
        return ()  # an answer of another form has no steps to tell
    return steps if reached == turn.source else ()


def _tunables(turn: Turn, parent: str) -> Mapping[str, int]:
    """The values that an answer chose for the parent's tunables, where they lead to the recorded child."""
    try:
        found = read_tuning(turn.answer, parent)
    except AnswerError:
        return {}
    return found.config if found.source == turn.source else {}
