"""Which rewrites apply to a source, with which arguments; remembered, because listing them reads the whole file."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from evaluator.errors import UsageError
from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.catalogue import catalogue, rewrite_named
from policy.rewrites.cst_tools import parse

ValueT = TypeVar("ValueT")

CACHED_SOURCES = 512


class Applicable:
    """The argument settings of some rewrites (all of the catalogue where none are named). For one thread at a time.

    Raises UsageError for unknown names.
    """

    def __init__(self, names: Sequence[str] | None = None) -> None:
        self.rewrites = _chosen(names)
        self._settings: _Bounded[Sequence[RewriteArgs]] = _Bounded(CACHED_SOURCES * len(self.rewrites))

    def settings(self, source: str, name: str, context: RewriteContext) -> Sequence[RewriteArgs]:
        """Every argument setting with which one rewrite applies; empty where it does not."""
        key = (source, name, context.model_dump_json())
        found = self._settings.get(key)
        if found is None:
            found = tuple(self.rewrites[name].candidates(source, context))
            self._settings.put(key, found)
        return found

    def all(self, source: str, context: RewriteContext) -> dict[str, Sequence[RewriteArgs]]:
        """Name -> argument settings, of the rewrites that apply."""
        found = {name: self.settings(source, name, context) for name in self.rewrites}
        return {name: settings for name, settings in found.items() if settings}

    def clear(self) -> None:
        """Forget everything."""
        self._settings.clear()


def parses(source: str) -> bool:
    """Whether rewrites can read a source at all."""
    try:
        parse(source)
    except RewriteError:
        return False
    return True


def _chosen(names: Sequence[str] | None) -> dict[str, Rewrite[Any]]:
    if names is None:
        return catalogue()
    try:
        return {name: rewrite_named(name) for name in names}
    except RewriteError as error:
        raise UsageError(str(error), "see policy/rewrites/catalogue.py for the names") from None


class _Bounded(Generic[ValueT]):
    """A mapping that forgets its least recently used entries."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[tuple[str, ...], ValueT] = OrderedDict()

    def get(self, key: tuple[str, ...]) -> ValueT | None:
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def put(self, key: tuple[str, ...], value: ValueT) -> None:
        self._values[key] = value
        if len(self._values) > self._size:
            self._values.popitem(last=False)

    def clear(self) -> None:
        self._values.clear()
