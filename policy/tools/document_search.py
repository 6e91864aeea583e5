"""`search_documents`: local documents and Triton's language reference, and the web where a provider is given."""

from __future__ import annotations

import logging

from pydantic import Field

from policy.tools.base import Found, Tool, ToolAnswer, ToolArgs
from policy.tools.documents import DocumentLibrary
from policy.tools.web import WebSearch

logger = logging.getLogger(__name__)


class SearchDocumentsArgs(ToolArgs):
    """Arguments of `search_documents`."""

    query: str = Field(min_length=1, max_length=500, description="Words, e.g. tl.dot input_precision.")
    limit: int = Field(default=4, ge=1, le=10, description="At most so many passages.")


class SearchDocuments(Tool[SearchDocumentsArgs]):
    """Passages of the documents first, then hits of the web search, at most `limit` of each."""

    name = "search_documents"
    description = (
        "Search Triton's language reference (name, signature and description of every tl function of the installed "
        "version) and local documents. Use it before you use a function that you are not sure of."
    )
    Args = SearchDocumentsArgs

    def __init__(self, library: DocumentLibrary, web: WebSearch | None = None) -> None:
        self._library = library
        self._web = web

    def answer(self, args: SearchDocumentsArgs, room: int) -> ToolAnswer:
        """The best passages. A web search that fails costs its hits, not the answer."""
        found = [Found(title=passage.title, text=passage.text) for passage in self._library.search(*_asked(args))]
        notes = []
        if self._web is not None:
            try:
                hits = self._web.search(*_asked(args))[: args.limit]
                found += [Found(title=f"{hit.title} ({hit.url})", text=hit.text) for hit in hits]
            except Exception:  # a provider is the user's code, and behind it is a network
                logger.exception("search_documents: the web search failed")
                notes.append("The web search failed.")
        summary = f"{len(found)} passages, best match first." if found else "Nothing has any of these words."
        return ToolAnswer(summary=" ".join([summary, *notes]), found=tuple(found))


def _asked(args: SearchDocumentsArgs) -> tuple[str, int]:
    return args.query, args.limit
