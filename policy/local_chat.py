"""A language model in this process: what its chats have in common, whatever runs the model.

Questions that arrive together are answered together: a thread of its own takes what has queued up and hands it to
the engine in one call. On a GPU that also times kernels, generating holds the GPU's lock in the way that checks do, so
that it never runs beside a timing, and between two calls the model sleeps: its weights leave the device.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from evaluator.errors import EnvironmentUnusableError
from evaluator.gpu_lock import GpuLock
from policy.chat import Answer, AskError, Question

LINGER_S = 0.05
"""How long a first question waits for others: prompts of one generation are made one after the other."""


@dataclass(frozen=True)
class _Waiting:
    """A question, or a call that must run between questions, and who waits for it."""

    asked: Question | Callable[[], Any]
    future: Future[Any]


class LocalChat(ABC):
    """Answers questions with a model in this process. The model is loaded by the first question.

    Subclasses run the model; everything of theirs but the properties runs on the chat's own thread.
    """

    def __init__(self, name: str, *, alone: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        """`alone` is held while the model works; see `gpu_guard`."""
        self._name = name
        self._alone = alone
        self._asked: queue.Queue[_Waiting | None] = queue.Queue()  # None closes
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._loaded = False
        self._failed: EnvironmentUnusableError | None = None
        self._context: int | None = None
        self._tokens = {"prompt_tokens": 0, "completion_tokens": 0}

    @property
    @abstractmethod
    def model(self) -> str:
        """The adapter where there is one, the model otherwise."""

    @property
    @abstractmethod
    def sampling(self) -> Mapping[str, Any]:
        """Settings worth storing with every answer."""

    @abstractmethod
    def _open(self) -> None:
        """Load the model, awake. Raises EnvironmentUnusableError when it or its package is not there."""

    @abstractmethod
    def _limit(self) -> int:
        """Tokens that a prompt and its answer may have together."""

    @abstractmethod
    def _answers(self, questions: Sequence[Question]) -> Sequence[list[Answer] | Exception]:
        """The answers to each question, or why it has none."""

    @abstractmethod
    def _drop(self) -> None:
        """Let go of the model."""

    @abstractmethod
    def _wake(self) -> None:
        """Bring the weights to the device, where they left it."""

    @abstractmethod
    def _rest(self) -> None:
        """Take the weights off the device, where that is asked for."""

    def spent(self) -> Mapping[str, float]:
        """Tokens so far; they cost no dollars here."""
        return {**self._tokens, "dollars": 0.0}

    async def context_tokens(self) -> int:
        """Tokens that a prompt and its answer may have together."""
        if self._context is None:
            self._context = int(await asyncio.wrap_future(self._put(self._limit)))
        return self._context

    async def ask(self, question: Question) -> list[Answer]:
        """`question.n` answers. Raises AskError."""
        return list(await asyncio.wrap_future(self._put(question)))

    async def close(self) -> None:
        """Let go of the model; safe to call twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._asked.put(None)
            await asyncio.get_running_loop().run_in_executor(None, thread.join)

    def _put(self, asked: Question | Callable[[], Any]) -> Future[Any]:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name=f"kernevo-{self._name}", daemon=True)
                self._thread.start()
        future: Future[Any] = Future()
        self._asked.put(_Waiting(asked, future))
        return future

    def _serve(self) -> None:
        """Answer what has queued up, together, until closed."""
        while (first := self._asked.get()) is not None:
            batch = [first]
            try:
                self._ready()
                self._gather(batch)
                self._turn(batch)
            except BaseException as error:
                for waiting in batch:
                    _settle(waiting.future, self._as_ask_error(error))
        if self._loaded:
            self._drop()
            self._loaded = False

    def _gather(self, batch: list[_Waiting]) -> None:
        """Add to `batch` what is queued, and what follows it closely."""
        while True:
            try:
                more = self._asked.get(timeout=LINGER_S)
            except queue.Empty:
                return
            if more is None:
                self._asked.put(None)
                return
            batch.append(more)

    def _ready(self) -> None:
        if self._failed is not None:
            raise self._failed
        if not self._loaded:
            try:
                with self._alone():
                    self._open()
                    self._loaded = True
                    self._rest()
            except EnvironmentUnusableError as error:
                self._failed = error
                raise

    def _turn(self, batch: list[_Waiting]) -> None:
        """Calls and questions in the order they came; questions that follow each other are one call of the engine."""
        if all(callable(waiting.asked) for waiting in batch):
            for waiting in batch:
                self._call(waiting)
            return
        with self._awake():
            self._gather(batch)  # waiting for the GPU may have taken long
            for is_call, group in groupby(batch, key=lambda waiting: callable(waiting.asked)):
                if is_call:
                    for waiting in group:
                        self._call(waiting)
                else:
                    self._reply(list(group))

    def _call(self, waiting: _Waiting) -> None:
        if not waiting.future.set_running_or_notify_cancel():
            return
        assert callable(waiting.asked)
        try:
            waiting.future.set_result(waiting.asked())
        except Exception as error:
            waiting.future.set_exception(self._as_ask_error(error))

    def _reply(self, group: Sequence[_Waiting]) -> None:
        asked = [
            (waiting.asked, waiting.future)
            for waiting in group
            if isinstance(waiting.asked, Question) and waiting.future.set_running_or_notify_cancel()
        ]
        if not asked:
            return
        for (_, future), found in zip(asked, self._answers([question for question, _ in asked]), strict=True):
            if isinstance(found, Exception):
                future.set_exception(self._as_ask_error(found))
            else:
                self._tokens["prompt_tokens"] += found[0].prompt_tokens if found else 0
                self._tokens["completion_tokens"] += sum(answer.completion_tokens for answer in found)
                future.set_result(found)

    @contextmanager
    def _awake(self) -> Iterator[None]:
        with self._alone():
            try:
                self._wake()
                yield
            finally:
                self._rest()

    def _as_ask_error(self, error: BaseException) -> BaseException:
        if isinstance(error, AskError):
            return error
        if isinstance(error, EnvironmentUnusableError):
            return AskError("unreachable", error.message, error.hint)
        return AskError("server_error", f"{self._name}: {type(error).__name__}: {first_line(error)}")


def _settle(future: Future[Any], error: BaseException) -> None:
    """Fail a future that nothing has settled yet."""
    if future.done() or (not future.running() and not future.set_running_or_notify_cancel()):
        return
    future.set_exception(error)


@contextmanager
def gpu_guard(index: int = 0) -> Iterator[None]:
    """Held while a model works on a GPU that kernels are timed on: its lock, shared as checks share it. `index` counts
    visible GPUs; on a machine without one there is nothing to hold."""
    if not has_gpu():
        yield
        return
    import torch

    with GpuLock(f"GPU-{torch.cuda.get_device_properties(index).uuid}").shared():
        yield


def has_gpu() -> bool:
    """Whether torch sees an NVIDIA GPU."""
    import torch

    return bool(torch.cuda.is_available())


def first_line(error: BaseException) -> str:
    """The first line of an exception's text; its type's name where it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
