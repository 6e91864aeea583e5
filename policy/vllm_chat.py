"""vLLM in this process: a `ChatModel` without a server.

Questions that arrive together are answered together: a thread of its own takes what has queued up and hands it to
vLLM in one call. On a GPU that also times kernels, generating holds the GPU's lock in the way that checks do, so that
it never runs beside a timing, and between two calls the model sleeps: its weights leave the device.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from evaluator.errors import EnvironmentUnusableError
from evaluator.gpu_lock import GpuLock
from policy.chat import Answer, AskError, Question

logger = logging.getLogger(__name__)

ENVIRONMENT = {
    # One process: nothing outlives the campaign, and a killed one leaves no engine behind.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
"""Set before vLLM is imported, where the user has not."""
_CLOSED = object()


@dataclass(frozen=True)
class VllmSettings:
    """What to load and how to sample."""

    model: str
    """Folder of the model, or its name where the machine can fetch it."""
    temperature: float = 0.8
    top_p: float = 1.0
    max_model_len: int | None = None
    """Tokens of a prompt and its answer together; the model's own limit when None."""
    dtype: str = "auto"
    gpu_memory: float = 0.3
    """Share of the GPU's memory for weights and cache."""
    adapter: str | None = None
    """Folder of a LoRA adapter."""
    sleep: bool = True
    """Move the weights off the GPU between calls."""
    send_seed: bool | None = None
    """Seed every question; on GPUs only when None, since vLLM's engine for CPUs dies of some seeded questions."""
    eager: bool = True
    """Do without CUDA graphs: they take memory and half a minute."""


def load(settings: VllmSettings) -> Any:
    """vLLM's engine. Raises EnvironmentUnusableError when vLLM or the model is not there."""
    if importlib.util.find_spec("vllm") is None:
        raise EnvironmentUnusableError("policy type vllm needs the package vllm", "pip install 'kernevo[vllm]'")
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from vllm import LLM

    options: dict[str, Any] = {"model": settings.model, "dtype": settings.dtype, "enforce_eager": settings.eager}
    if settings.max_model_len is not None:
        options["max_model_len"] = settings.max_model_len
    if settings.adapter is not None:
        options["enable_lora"] = True
    if _has_gpu():
        options |= {"gpu_memory_utilization": settings.gpu_memory, "enable_sleep_mode": settings.sleep}
    try:
        return LLM(**options)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise EnvironmentUnusableError(
            f"vLLM cannot load {settings.model}: {reason}", "check policy.model: a folder with config.json and weights"
        ) from None


class VllmChat:
    """Answers questions with vLLM in this process. The engine is loaded by the first question."""

    def __init__(
        self,
        settings: VllmSettings,
        *,
        alone: Callable[[], AbstractContextManager[None]] = nullcontext,
        load_engine: Callable[[VllmSettings], Any] = load,
    ) -> None:
        """`alone` is held while the engine works; see `gpu_guard`."""
        self._settings, self._alone, self._load = settings, alone, load_engine
        self._engine: Any = None
        self._seeded = True
        self._failed: EnvironmentUnusableError | None = None
        self._asked: queue.Queue[Any] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._tokens = {"prompt_tokens": 0, "completion_tokens": 0}

    @property
    def model(self) -> str:
        """The adapter where there is one, the model otherwise."""
        return self._settings.adapter or self._settings.model

    @property
    def sampling(self) -> Mapping[str, Any]:
        """Temperature and top_p."""
        return {"temperature": self._settings.temperature, "top_p": self._settings.top_p}

    def spent(self) -> Mapping[str, float]:
        """Tokens so far; they cost no dollars here."""
        return {**self._tokens, "dollars": 0.0}

    async def context_tokens(self) -> int:
        """Tokens that a prompt and its answer may have together."""
        return int(await asyncio.wrap_future(self._put(None)))

    async def ask(self, question: Question) -> list[Answer]:
        """`question.n` answers. Raises AskError."""
        return list(await asyncio.wrap_future(self._put(question)))

    async def close(self) -> None:
        """Let go of the engine; safe to call twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._asked.put(_CLOSED)
            await asyncio.get_running_loop().run_in_executor(None, thread.join)

    def _put(self, question: Question | None) -> Future[Any]:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="kernevo-vllm", daemon=True)
                self._thread.start()
        future: Future[Any] = Future()
        self._asked.put((question, future))
        return future

    def _serve(self) -> None:
        """Answer what has queued up, together, until closed."""
        while (first := self._asked.get()) is not _CLOSED:
            batch = [first]
            while not self._asked.empty():
                more = self._asked.get()
                if more is _CLOSED:
                    self._asked.put(_CLOSED)
                    break
                batch.append(more)
            batch = [(question, future) for question, future in batch if future.set_running_or_notify_cancel()]
            try:
                self._ready()
                self._answer(batch)
            except BaseException as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(_as_ask_error(error))
        self._engine = None

    def _ready(self) -> None:
        if self._failed is not None:
            raise self._failed
        if self._engine is None:
            try:
                with self._alone():
                    self._engine = self._load(self._settings)
                    self._seeded = _has_gpu() if self._settings.send_seed is None else self._settings.send_seed
                    self._rest()
            except EnvironmentUnusableError as error:
                self._failed = error
                raise

    def _answer(self, batch: Sequence[tuple[Question | None, Future[Any]]]) -> None:
        for question, future in batch:
            if question is None:
                future.set_result(self._engine.llm_engine.model_config.max_model_len)
        asked = [(question, future) for question, future in batch if question is not None]
        if not asked:
            return
        with self._awake():
            for (question, future), output in zip(asked, self._generate([q for q, _ in asked]), strict=True):
                if isinstance(output, Exception):
                    future.set_exception(_as_ask_error(output))
                else:
                    future.set_result(self._answers(question, output))

    def _generate(self, questions: Sequence[Question]) -> list[Any]:
        """vLLM's output for each question; its exception where it refuses one of them."""
        try:
            return list(self._chat(questions))
        except ValueError as error:  # a prompt that is too long spoils the whole call
            if len(questions) == 1:
                return [error]
        return [output for question in questions for output in self._generate([question])]

    def _chat(self, questions: Sequence[Question]) -> Sequence[Any]:
        conversations = [[message.model_dump() for message in question.messages] for question in questions]
        options: dict[str, Any] = {"use_tqdm": False}
        if self._settings.adapter is not None:
            from vllm.lora.request import LoRARequest

            options["lora_request"] = LoRARequest("adapter", 1, self._settings.adapter)
        answered: Sequence[Any] = self._engine.chat(conversations, [self._params(one) for one in questions], **options)
        return answered

    def _params(self, question: Question) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        held = None if question.schema is None else StructuredOutputsParams(json=dict(question.schema))
        return SamplingParams(
            n=question.n,
            temperature=self._settings.temperature,
            top_p=self._settings.top_p,
            max_tokens=question.max_tokens,
            seed=question.seed if self._seeded else None,
            logprobs=0,  # of the sampled token alone
            structured_outputs=held,
        )

    def _answers(self, question: Question, output: Any) -> list[Answer]:
        prompt_ids = tuple(output.prompt_token_ids or ())
        self._tokens["prompt_tokens"] += len(prompt_ids)
        answers = []
        for choice in output.outputs[: question.n]:
            ids = tuple(choice.token_ids)
            self._tokens["completion_tokens"] += len(ids)
            answers.append(
                Answer(
                    text=choice.text,
                    finish_reason=choice.finish_reason or "stop",
                    model=self.model,
                    prompt_tokens=len(prompt_ids),
                    completion_tokens=len(ids),
                    prompt_token_ids=prompt_ids,
                    answer_token_ids=ids,
                    logprobs=_logprobs(ids, choice.logprobs),
                )
            )
        return answers

    @contextmanager
    def _awake(self) -> Iterator[None]:
        with self._alone():
            if self._sleeps:
                self._engine.wake_up()
            try:
                yield
            finally:
                self._rest()

    def _rest(self) -> None:
        if self._sleeps:
            self._engine.sleep(level=1)

    @property
    def _sleeps(self) -> bool:
        return self._settings.sleep and bool(self._engine.llm_engine.model_config.enable_sleep_mode)


@contextmanager
def gpu_guard() -> Iterator[None]:
    """Held while vLLM works on a GPU that kernels are timed on: its lock, shared as checks share it. vLLM uses the
    first visible GPU; on a machine without one there is nothing to hold."""
    if not _has_gpu():
        yield
        return
    import torch

    with GpuLock(f"GPU-{torch.cuda.get_device_properties(0).uuid}").shared():
        yield


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _logprobs(ids: Sequence[int], given: Sequence[Mapping[int, Any]] | None) -> tuple[float, ...] | None:
    """The sampled tokens' own; None where one is missing."""
    if given is None or len(given) != len(ids):
        return None
    found = [row.get(token) for token, row in zip(ids, given, strict=True)]
    return None if any(one is None for one in found) else tuple(float(one.logprob) for one in found if one is not None)


def _as_ask_error(error: BaseException) -> BaseException:
    if isinstance(error, AskError):
        return error
    if isinstance(error, EnvironmentUnusableError):
        return AskError("unreachable", error.message, error.hint)
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if "maximum context length" in text or "maximum model length" in text:
        return AskError("context_overflow", f"vLLM: {text}")
    return AskError("server_error", f"vLLM: {type(error).__name__}: {text}")
