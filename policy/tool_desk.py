"""The tools of a policy: lets a model look things up and try drafts while it analyses a parent."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from evaluator.types import Evaluation, KernelSource
from policy.chat import AskError
from policy.tool_chat import Chat, ChatAnswer, ChatMessage, Conversation, JsonSchema, run_with_tools
from policy.tools import (
    ANSWER_CHARS,
    DocumentLibrary,
    KernelLibrary,
    LibraryKernel,
    ToolBox,
    ToolSources,
    folder_kernels,
    language_reference,
    shipped_kernels,
)
from policy.types import ProposalRequest

TALKS = 8
"""Conversations at once; each holds a thread that mostly waits for the server."""
CHARS_PER_TOKEN = 2.5
"""Tools answer in code, of which a token holds few characters."""

Usage = dict[str, dict[str, int]]
"""Tool -> calls, errors among them, characters answered."""


class DraftJudge(Protocol):
    """Judges drafts for `evaluate_kernel`. Any thread may call it."""

    def judge(self, source: KernelSource) -> Evaluation:
        """The verdict on one draft."""
        ...

    def close(self) -> None:
        """Let go of what judging needs; safe to call twice."""
        ...


@dataclass(frozen=True)
class Talk:
    """What came of a conversation. `text` is None where it outgrew the model's context."""

    text: str | None
    usage: Usage


class ToolDesk:
    """Makes a toolbox for each parent and counts what all of them were used for.

    `documents` is a folder: its .md, .rst and .txt files are for `search_documents`, its .py files for
    `search_kernels`, beside `kernels`. Raises UsageError for a folder that is not there or too large.
    """

    def __init__(
        self,
        names: Sequence[str],
        rounds: int,
        *,
        documents: Path | None = None,
        kernels: Sequence[LibraryKernel] = (),
        judge: DraftJudge | None = None,
    ) -> None:
        self._names = tuple(names)
        self._rounds = rounds
        self._judge = judge
        self._documents = DocumentLibrary(documents, language_reference)
        self._kernels = (*kernels, *(folder_kernels(documents) if documents else ()), *shipped_kernels())
        self._pool = ThreadPoolExecutor(TALKS, thread_name_prefix="kernevo-tools")
        self._running: set[Future[Conversation]] = set()
        self._closing = threading.Event()
        self._used: dict[str, Counter[str]] = {}
        self._lock = threading.Lock()

    async def talk(
        self,
        chat: Chat,
        messages: Sequence[ChatMessage],
        request: ProposalRequest,
        room: int,
        count: Callable[[str], None],
    ) -> Talk:
        """The model's last answer to `messages`, after calls of tools whose answers have about `room` tokens together.

        `count` is told `asked` and `answered` for every answer of the conversation. The event loop stays free: talking
        waits on a thread of its own. Raises AskError when the server does not answer.
        """
        chars = min(ANSWER_CHARS, int(room * CHARS_PER_TOKEN / self._rounds))
        box = ToolBox.of(self._names, self._sources(request), chars)
        talking = self._pool.submit(run_with_tools, _Counted(chat, count, self._closing), messages, box, self._rounds)
        self._running.add(talking)
        talking.add_done_callback(self._running.discard)
        try:
            done = await asyncio.wrap_future(talking)
        except AskError as error:
            if error.reason != "context_overflow":
                raise
            return Talk(None, box.usage())
        finally:
            self._count(box.usage())
        return Talk(done.text.strip(), box.usage())

    def usage(self) -> Usage:
        """What the tools of all conversations were used for."""
        with self._lock:
            return {name: dict(counts) for name, counts in self._used.items()}

    def close(self, cancel: Callable[[], None]) -> None:
        """End all conversations, then close the judge of drafts. `cancel` cancels the questions in flight."""
        self._closing.set()
        # Again and again: a conversation may have been about to ask when the others were cancelled.
        while talking := [future for future in tuple(self._running) if not future.done()]:
            cancel()
            wait(talking, timeout=0.05)
        self._pool.shutdown(cancel_futures=True)
        if self._judge is not None:
            self._judge.close()

    def _sources(self, request: ProposalRequest) -> ToolSources:
        return ToolSources(
            evaluate=None if self._judge is None else self._judge.judge,
            kernels=KernelLibrary(self._kernels, lambda: _elites(request)),
            documents=self._documents,
        )

    def _count(self, usage: Mapping[str, Mapping[str, int]]) -> None:
        with self._lock:
            for name, counts in usage.items():
                self._used.setdefault(name, Counter()).update(counts)


def _elites(request: ProposalRequest) -> Iterator[LibraryKernel]:
    """The elites of other cells that the search sends along, with their speedups."""
    for view in request.inspirations:
        judged = view.evaluation
        yield LibraryKernel(
            name=view.candidate_id,
            task=request.task.name,
            speedup=judged.speedup if judged else None,
            kind=judged.kind if judged else None,
            source=view.source.text,
        )


class _Counted:
    """A chat that tells of every answer, and asks nothing more once the desk closes."""

    def __init__(self, chat: Chat, count: Callable[[str], None], closing: threading.Event) -> None:
        self._chat = chat
        self._count = count
        self._closing = closing

    @property
    def model(self) -> str:
        return self._chat.model

    def complete(
        self, messages: Sequence[ChatMessage], tools: Sequence[JsonSchema] | None, schema: JsonSchema | None
    ) -> ChatAnswer:
        if self._closing.is_set():
            raise AskError("unreachable", f"{self.model}: asking was stopped before there was an answer")
        self._count("asked")
        answer = self._chat.complete(messages, tools, schema)
        self._count("answered")
        return answer
