"""`search_documents`: local documents and Triton's language reference."""

from __future__ import annotations

from pydantic import Field

from policy.tools.base import Found, Tool, ToolAnswer, ToolArgs
from policy.tools.documents import DocumentLibrary


class SearchDocumentsArgs(ToolArgs):
    """Arguments of `search_documents`."""

    query: str = Field(min_length=1, max_length=500, description="Words, e.g. tl.dot input_precision.")
    limit: int = Field(default=4, ge=1, le=10, description="At most so many passages.")


class SearchDocuments(Tool[SearchDocumentsArgs]):
    """The passages that match best, at most `limit`."""

    name = "search_documents"
    description = (
        "Search Triton's language reference (name, signature and description of every tl function of the installed "
        "version) and local documents. Use it before you use a function that you are not sure of."
    )
    Args = SearchDocumentsArgs

    def __init__(self, library: DocumentLibrary) -> None:
        self._library = library

    def answer(self, args: SearchDocumentsArgs, room: int) -> ToolAnswer:
        """The best passages."""
        passages = self._library.search(args.query, args.limit)
        if not passages:
            return ToolAnswer(summary="Nothing has any of these words.")
        found = tuple(Found(title=passage.title, text=passage.text) for passage in passages)
        return ToolAnswer(summary=f"{len(found)} passages, best match first.", found=found)
