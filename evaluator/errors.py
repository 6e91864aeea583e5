"""Errors meant for the person at the keyboard: what went wrong, where, and how to mend it."""

from __future__ import annotations


class KernevoError(Exception):
    """Any failure a user can act on.

    `message` says what and where (file:line:column when there is a file), `hint` says the fix.
    The command line prints both without a traceback and exits with `exit_code`.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  fix: {self.hint}" if self.hint else self.message


class UsageError(KernevoError):
    """The command line or the config is wrong (exit 2)."""

    exit_code = 2


class TaskError(UsageError):
    """A task cannot be found, read or judged (exit 2)."""


class EnvironmentUnusableError(KernevoError):
    """The machine lacks what the run needs: a GPU, a free disk, a writable folder (exit 4)."""

    exit_code = 4


class HarnessError(KernevoError):
    """Our own machinery failed; never blamed on a candidate, never a pass."""
