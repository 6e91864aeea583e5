"""The kernels that a model may look up: shipped seeds, the elites of the run, folders of the user's files."""

from __future__ import annotations

import io
import keyword
import logging
import tokenize
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from evaluator.errors import UsageError
from evaluator.task import list_tasks, load_task
from evaluator.types import Frozen, TimingKind
from policy.tools.ranking import Bm25, words

logger = logging.getLogger(__name__)

FILE_BYTES = 200_000
"""Larger files are no kernels."""
FILES = 2000
"""A folder with more files than this is a mistake."""


class LibraryKernel(Frozen):
    """One kernel of the library."""

    name: str
    task: str = ""
    """Name of the task it solves; empty where nobody knows."""
    speedup: float | None = None
    """Over its task's baseline; > 1 is faster."""
    kind: TimingKind | None = None
    """Whether `speedup` was measured or modelled."""
    source: str


class KernelLibrary:
    """All kernels, ranked by BM25 over the identifiers and comments of their sources.

    `elites` is asked at every search, since a run's elites change; it may be called from several threads.
    """

    def __init__(self, kernels: Sequence[LibraryKernel], elites: Callable[[], Iterable[LibraryKernel]] = tuple) -> None:
        self._kernels = tuple(kernels)
        self._elites = elites

    def search(self, query: str, count: int, task: str = "") -> list[LibraryKernel]:
        """At most `count` kernels that share a word with `query`, best first; of one task where `task` names it."""
        known: dict[str, LibraryKernel] = {}
        for kernel in (*self._elites(), *self._kernels):
            known.setdefault(kernel.source, kernel)  # an elite knows its speedup, its copy in a folder does not
        kernels = [kernel for kernel in known.values() if not task or kernel.task == task]
        index = Bm25([(*words(f"{kernel.name} {kernel.task}"), *source_words(kernel.source)) for kernel in kernels])
        return [kernels[number] for number in index.best(words(query), count)]

    def tasks(self) -> list[str]:
        """Names of the tasks that there are kernels for, sorted."""
        return sorted({kernel.task for kernel in (*self._elites(), *self._kernels) if kernel.task})


@lru_cache(maxsize=4096)
def source_words(source: str) -> tuple[str, ...]:
    """The words of a Python source's identifiers, comments and strings; of all its text where it does not tokenise."""
    kept: list[str] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            is_name = token.type == tokenize.NAME and not keyword.iskeyword(token.string)
            if is_name or token.type in (tokenize.COMMENT, tokenize.STRING):
                kept.append(token.string)
    except (tokenize.TokenError, SyntaxError):
        return tuple(words(source))
    return tuple(words(" ".join(kept)))


def shipped_kernels() -> list[LibraryKernel]:
    """The seeds of the shipped tasks."""
    tasks = [load_task(name) for name in list_tasks()]
    return [
        LibraryKernel(name=f"seed of {task.name}", task=task.name, source=task.seed_source)
        for task in tasks
        if task.seed_source is not None
    ]


def folder_kernels(folder: Path) -> list[LibraryKernel]:
    """The .py files below `folder` in the order of their paths; hidden and oversized ones are left out. Nothing is run.

    Raises UsageError when there is no such folder or it holds too many files.
    """
    return [
        LibraryKernel(name=str(path.relative_to(folder)), source=text) for path, text in texts_below(folder, (".py",))
    ]


def texts_below(folder: Path, suffixes: Sequence[str]) -> list[tuple[Path, str]]:
    """Paths and texts of the files below `folder` with one of `suffixes`. Raises UsageError."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder", "give a folder that exists, or leave it out")
    paths = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in suffixes and not _hidden(path.relative_to(folder)) and path.is_file()
    )
    if len(paths) > FILES:
        raise UsageError(f"{folder}: holds {len(paths)} files, at most {FILES} are read", "give a smaller folder")
    found = []
    for path in paths:
        try:
            if path.stat().st_size <= FILE_BYTES:
                found.append((path, path.read_text(encoding="utf-8", errors="replace")))
        except OSError as error:
            logger.warning("not read: %s", error)
    return found


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "__pycache__")) for part in path.parts)
