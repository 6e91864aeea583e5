"""The hook for a web search: a protocol, and how a provider is found. Kernevo ships none."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

from evaluator.errors import UsageError
from evaluator.types import Frozen


class Hit(Frozen):
    """One result of a web search."""

    title: str
    url: str
    text: str
    """What the page says about the query: an excerpt, not the page."""


class WebSearch(Protocol):
    """A provider of web search. Keys and network are its own affair; it may raise anything."""

    def search(self, query: str, limit: int) -> list[Hit]:
        """At most `limit` hits, best first."""
        ...


def load_web_search(path: str) -> WebSearch:
    """The provider at `package.module:name`: an object with `search`, or a class or function that makes one.

    Raises UsageError naming what is missing.
    """
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise UsageError(f"web search {path!r}: not a path", "write package.module:name, e.g. my_search:Provider")
    try:
        made = getattr(import_module(module_name), name)
        provider = made if callable(getattr(made, "search", None)) and not isinstance(made, type) else made()
    except Exception as error:  # importing and making a user's provider runs the user's code
        what = f"{type(error).__name__}: {error}"
        raise UsageError(
            f"web search {path!r}: {what}", "install the provider, or put its folder on PYTHONPATH"
        ) from error
    if not callable(getattr(provider, "search", None)):
        raise UsageError(f"web search {path!r}: has no search(query, limit)", "see docs/tools.md")
    found: WebSearch = provider
    return found
