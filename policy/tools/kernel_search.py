"""`search_kernels`: kernels of the library by what their code says."""

from __future__ import annotations

from pydantic import Field

from policy.tools.base import Found, Tool, ToolAnswer, ToolArgs
from policy.tools.excerpts import excerpt
from policy.tools.kernel_library import KernelLibrary, LibraryKernel

_TITLE_CHARS = 200


class SearchKernelsArgs(ToolArgs):
    """Arguments of `search_kernels`."""

    query: str = Field(min_length=1, max_length=500, description="Words, e.g. names of Triton functions or techniques.")
    task: str = Field(default="", max_length=100, description="Only kernels of this task; empty for all.")
    limit: int = Field(default=3, ge=1, le=5, description="At most so many kernels.")


class SearchKernels(Tool[SearchKernelsArgs]):
    """Ranks the library by BM25 and shows sources cut at whole functions."""

    name = "search_kernels"
    description = (
        "Search working Triton kernels by identifiers and comments: seeds of other tasks, the best kernels of this "
        "run, and local files. Use it to see how something is written."
    )
    Args = SearchKernelsArgs

    def __init__(self, library: KernelLibrary) -> None:
        self._library = library

    def answer(self, args: SearchKernelsArgs, room: int) -> ToolAnswer:
        """The best kernels for the query, with equal shares of the room."""
        kernels = self._library.search(args.query, args.limit, args.task)
        if not kernels:
            tasks = ", ".join(self._library.tasks())
            return ToolAnswer(summary=f"No kernel has any of these words. Tasks with kernels: {tasks or 'none'}.")
        share = max(0, room - _TITLE_CHARS) // len(kernels) - _TITLE_CHARS
        found = tuple(
            Found(title=_title(kernel), text=excerpt(kernel.source, args.query, share), language="python")
            for kernel in kernels
        )
        return ToolAnswer(summary=f"{len(kernels)} kernels, best match first.", found=found)


def _title(kernel: LibraryKernel) -> str:
    facts = [kernel.name, f"task {kernel.task}" if kernel.task else "task unknown"]
    if kernel.speedup is not None:
        facts.append(f"{kernel.speedup:.3f}x its baseline ({kernel.kind or 'unknown kind'})")
    return ", ".join(facts)
