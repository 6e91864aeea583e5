"""Optuna studies as a file that optuna-dashboard reads, written in one go.

Optuna's own file backend syncs the disk for every trial, which takes minutes for the trials of a long campaign.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend


class StudyFile(BaseJournalBackend):
    """Collects what is written through `storage`; `lines` are a file of `optuna.storages.JournalFileBackend`."""

    def __init__(self) -> None:
        self._logs: list[dict[str, Any]] = []
        self.storage = JournalStorage(self)

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        """Entries from that number on."""
        return self._logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Add entries at the end."""
        self._logs += logs

    def lines(self) -> Iterator[str]:
        """The file, line by line."""
        return (json.dumps(log, separators=(",", ":")) + "\n" for log in self._logs)
