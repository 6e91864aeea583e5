"""Which earlier attempts a prompt shows, and the store that keeps every attempt outside of the prompt.

Prompts show the best attempts by reward. A seeded tenth of them shows nothing instead and another tenth a broken kernel
with its error, so that a policy that learns from its prompts also meets the first turn and the repair of a failure.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from evaluator.errors import KernevoError, UsageError
from evaluator.source_hash import ast_hash
from evaluator.types import EvalStatus, Evaluation, Task
from policy.quality import quality_of
from policy.reward import RewardSettings, input_of, reward_of
from policy.types import ParentView, ProposalRequest

WIDTH = 4
"""Attempts that a prompt shows."""
NOTHING_SHARE = 0.1
"""Share of prompts that show no attempt."""
BROKEN_SHARE = 0.1
"""Share of prompts that show one broken kernel."""

# Keeps these draws apart from what policies draw of the same seed.
_STREAM = 0x636F6E74


class TornAttemptWarning(UserWarning):
    """The last line of an attempt store was half written when a process died."""


class AttemptStore:
    """Every judged attempt by task, in memory or, given a path, in a JSONL file that outlives the process.

    One process may write a file at a time. It is a memory and no record: it may be deleted, and prompts then start
    afresh. A torn last line is cut off with TornAttemptWarning; other damage raises KernevoError.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._attempts: dict[str, list[ParentView]] = {}
        if path is not None and path.exists():
            self._read(path)

    def add(self, task: Task, attempt: ParentView) -> None:
        """Keep one judged attempt on `task`. Raises KernevoError when the file cannot be written."""
        self._attempts.setdefault(task.fingerprint, []).append(attempt)
        if self.path is None:
            return
        line = json.dumps({"task": task.fingerprint, "attempt": attempt.model_dump(mode="json")}) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as stream:
                stream.write(line.encode())
        except OSError as error:
            raise KernevoError(
                f"{self.path}: cannot be written: {error.strerror}", "free the disk or move it"
            ) from error

    def attempts(self, task: Task) -> tuple[ParentView, ...]:
        """Everything kept for `task`, earliest first."""
        return tuple(self._attempts.get(task.fingerprint, ()))

    def _read(self, path: Path) -> None:
        try:
            lines = path.read_bytes().splitlines(keepends=True)
        except OSError as error:
            raise KernevoError(f"{path}: cannot be read: {error.strerror}", "give the path of a file") from error
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                warnings.warn(
                    f"{path}:{number}: the last line is torn; it is cut off", TornAttemptWarning, stacklevel=3
                )
                with path.open("r+b") as stream:
                    stream.truncate(path.stat().st_size - len(line))
                return
            try:
                row = json.loads(line)
                self._attempts.setdefault(row["task"], []).append(ParentView.model_validate(row["attempt"]))
            except (ValueError, TypeError, KeyError, ValidationError) as error:
                first = str(error).splitlines()[0]
                raise KernevoError(
                    f"{path}:{number}: damaged line: {first}", "delete that line, or the file to start afresh"
                ) from None


def with_context(
    request: ProposalRequest,
    *,
    store: AttemptStore | None = None,
    width: int = WIDTH,
    reward: RewardSettings | None = None,
) -> ProposalRequest:
    """The request with only those attempts that its prompt shows, best first: at most `width` of its own and `store`'s.

    Deterministic: which kind of context a prompt gets is drawn from `request.seed`. Raises UsageError for a `width`
    below 0.
    """
    if width < 0:
        raise UsageError(f"width is {width}", "use 0 or more")
    known = request.attempts + (store.attempts(request.task) if store is not None else ())
    return request.model_copy(update={"attempts": shown(request, known, width, reward)})


def shown(
    request: ProposalRequest, known: Sequence[ParentView], width: int, reward: RewardSettings | None = None
) -> tuple[ParentView, ...]:
    """Nothing, one broken kernel, or the best `width` of the `known` attempts, as the request's seed has it."""
    rng = np.random.default_rng([request.seed, _STREAM])
    draw = rng.random()
    if draw < NOTHING_SHARE:
        return ()
    ranked = _ranked(request, known, reward)
    broken = [view for view in ranked if _is_broken(view)]
    if draw < NOTHING_SHARE + BROKEN_SHARE and broken and width > 0:
        return (broken[int(rng.integers(len(broken)))],)
    return tuple(ranked[:width])


def _ranked(request: ProposalRequest, known: Sequence[ParentView], reward: RewardSettings | None) -> list[ParentView]:
    """Attempts that tell something, each program once, by falling reward; of equal ones the earlier first."""
    parents = {ast_hash(view.source.text) for view in request.parents}
    parent = request.parents[0].evaluation
    earned: dict[str, tuple[float, ParentView]] = {}
    for view in known:
        program = ast_hash(view.source.text)
        evaluation = view.evaluation
        if evaluation is None or program in parents or not _comparable(evaluation, parent):
            continue
        total = reward_of(input_of(evaluation, quality=quality_of(view.source.text).total), reward).total
        if program not in earned or total > earned[program][0]:
            earned[program] = (total, view)
    return [view for _, view in sorted(earned.values(), key=lambda pair: -pair[0])]


def _comparable(evaluation: Evaluation, parent: Evaluation | None) -> bool:
    """Whether a verdict says something about its kernel, and no modelled latency stands beside a measured one."""
    if evaluation.status.blames_harness or evaluation.status is EvalStatus.DUPLICATE:
        return False
    kinds = {evaluation.kind, parent.kind if parent is not None else None} - {None}
    return len(kinds) <= 1


def _is_broken(view: ParentView) -> bool:
    """Failed without cheating: what a policy can learn to mend."""
    assert view.evaluation is not None
    return not view.evaluation.status.passed and not view.evaluation.status.is_hack
