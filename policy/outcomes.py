"""What became of the questions of a policy: counts, one warning for each kind of failure, and a pause after some."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from policy.chat import AskError

LOG = logging.getLogger("kernevo.policy")

LASTING = frozenset({"unreachable", "timeout", "rate_limited", "refused", "wrong_model", "adapter"})
"""Failures that the next question would meet too: asking pauses after them."""


class Outcomes:
    """Counters that any thread may write and read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._groups: dict[str, Counter[str]] = {"unusable": Counter(), "failures": Counter(), "fallbacks": Counter()}
        self._warned: set[str] = set()

    def count(self, name: str, amount: int = 1) -> None:
        """Count `asked`, `answered`, `proposed`, `repaired`, `duplicates` …"""
        with self._lock:
            self._counts[name] += amount

    def count_in(self, group: str, reason: str) -> None:
        """Count one of `unusable`, `failures` or `fallbacks` under its reason."""
        with self._lock:
            self._groups[group][reason] += 1

    def failed(self, policy: str, error: AskError, consequence: str) -> None:
        """Count a failure; the first of each reason is told at once."""
        self.count_in("failures", error.reason)
        with self._lock:
            first = error.reason not in self._warned
            self._warned.add(error.reason)
        if first:
            LOG.warning("policy %s: %s; %s", policy, error.message, consequence)

    def summary(self) -> dict[str, Any]:
        """Every count so far."""
        with self._lock:
            names = ("asked", "answered", "proposed", "repaired", "duplicates", "unchanged")
            plain = {name: self._counts[name] for name in names}
            return {**plain, **{name: dict(counts) for name, counts in self._groups.items()}}


class Pause:
    """After a lasting failure nothing is asked for `seconds`: a dead server must not cost every request its retries."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until = float("-inf")
        self._reason: str | None = None

    @property
    def reason(self) -> str | None:
        """The reason of the pause that lasts now; None when there is none."""
        return self._reason if self._clock() < self._until else None

    def after(self, error: AskError) -> None:
        """Begin a pause when `error` is of the kind that lasts."""
        if error.reason in LASTING:
            self._reason, self._until = error.reason, self._clock() + self._seconds
