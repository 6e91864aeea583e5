"""Keeps every judged attempt outside of the prompt, for search that goes on for longer than a context holds."""

from __future__ import annotations

import fcntl
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from evaluator.errors import KernevoError, UsageError
from evaluator.types import Task
from policy.types import ParentView


class TornAttemptWarning(UserWarning):
    """The last line of an attempt store was half written when a process died."""


class AttemptStore:
    """Every judged attempt by task, in a JSONL file that outlives the process and may be shared by runs in turn.

    It is a memory and no record: it may be deleted, and prompts then start afresh. Held by one owner at a time
    (UsageError for a second one), until `close`. A torn last line is cut off with TornAttemptWarning; other damage
    and a file that cannot be read or written raise KernevoError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._attempts: dict[str, list[ParentView]] = {}
        self._known: set[tuple[str, ...]] = set()
        self._stream = self._opened()
        try:
            self._lock()
            self._read()
        except BaseException:
            self._stream.close()
            raise

    def add(self, task: Task, attempts: Sequence[ParentView]) -> None:
        """Keep judged attempts on `task`. A source that the same judge has judged before is not kept again."""
        lines = []
        for attempt in attempts:
            if self._remember(task.fingerprint, attempt):
                lines.append(json.dumps({"task": task.fingerprint, "attempt": attempt.model_dump(mode="json")}) + "\n")
        try:
            self._stream.write("".join(lines).encode())
            self._stream.flush()
        except OSError as error:
            raise KernevoError(
                f"{self.path}: cannot be written: {error.strerror}", "free the disk or move it"
            ) from error

    def attempts(self, task: Task) -> tuple[ParentView, ...]:
        """Everything kept for `task`, earliest first."""
        return tuple(self._attempts.get(task.fingerprint, ()))

    def close(self) -> None:
        """Let go of the file; safe to call twice. Nothing can be added afterwards."""
        self._stream.close()

    def _remember(self, task: str, attempt: ParentView) -> bool:
        judged = attempt.evaluation
        if judged is None:
            return False
        key = (task, attempt.source.sha, judged.evaluator, judged.target)
        if key in self._known:
            return False
        self._known.add(key)
        self._attempts.setdefault(task, []).append(attempt)
        return True

    def _opened(self) -> BinaryIO:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return self.path.open("a+b")
        except OSError as error:
            raise KernevoError(
                f"{self.path}: cannot be opened: {error.strerror}", "give the path of a file that can be written"
            ) from error

    def _lock(self) -> None:
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(
                f"{self.path}: another campaign is using it", "wait for that one, or give this one another file"
            ) from None

    def _read(self) -> None:
        self._stream.seek(0)
        good = 0
        for number, line in enumerate(self._stream, start=1):
            if not line.endswith(b"\n"):
                warnings.warn(
                    f"{self.path}:{number}: the last line is torn; it is cut off", TornAttemptWarning, stacklevel=3
                )
                self._stream.truncate(good)
                break
            good += len(line)
            try:
                row = json.loads(line)
                self._remember(row["task"], ParentView.model_validate(row["attempt"]))
            except (ValueError, TypeError, KeyError, ValidationError) as error:
                first = str(error).splitlines()[0]
                raise KernevoError(
                    f"{self.path}:{number}: damaged line: {first}", "delete that line, or the file to start afresh"
                ) from None
