"""vLLM in this process: a `ChatModel` without a server; `policy.local_chat` says how it is asked."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from evaluator.errors import EnvironmentUnusableError
from policy.chat import Answer, AskError, Question
from policy.local_chat import LocalChat, first_line, has_gpu

ENVIRONMENT = {
    # One process: nothing outlives the campaign, and a killed one leaves no engine behind.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
"""Set before vLLM is imported, where the user has not."""


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
    if has_gpu():
        options |= {"gpu_memory_utilization": settings.gpu_memory, "enable_sleep_mode": settings.sleep}
    try:
        return LLM(**options)
    except (OSError, ValueError, RuntimeError) as error:
        raise EnvironmentUnusableError(
            f"vLLM cannot load {settings.model}: {first_line(error)}",
            "check policy.model: a folder with config.json and weights",
        ) from None


class VllmChat(LocalChat):
    """Answers questions with vLLM in this process. The engine is loaded by the first question."""

    def __init__(
        self,
        settings: VllmSettings,
        *,
        alone: Callable[[], AbstractContextManager[None]] = nullcontext,
        load_engine: Callable[[VllmSettings], Any] = load,
    ) -> None:
        """`alone` is held while the engine works; see `policy.local_chat.gpu_guard`."""
        super().__init__("vllm", alone=alone)
        self._settings, self._load = settings, load_engine
        self._engine: Any = None
        self._seeded = True

    @property
    def model(self) -> str:
        """The adapter where there is one, the model otherwise."""
        return self._settings.adapter or self._settings.model

    @property
    def sampling(self) -> Mapping[str, Any]:
        """Temperature and top_p."""
        return {"temperature": self._settings.temperature, "top_p": self._settings.top_p}

    def _open(self) -> None:
        self._engine = self._load(self._settings)
        self._seeded = has_gpu() if self._settings.send_seed is None else self._settings.send_seed

    def _limit(self) -> int:
        return int(self._engine.llm_engine.model_config.max_model_len)

    def _drop(self) -> None:
        self._engine = None

    def _answers(self, questions: Sequence[Question]) -> list[list[Answer] | Exception]:
        found: list[list[Answer] | Exception] = []
        for question, output in zip(questions, self._generate(questions), strict=True):
            found.append(_refusal(output) if isinstance(output, Exception) else self._told(question, output))
        return found

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

    def _told(self, question: Question, output: Any) -> list[Answer]:
        prompt_ids = tuple(output.prompt_token_ids or ())
        answers = []
        for choice in output.outputs[: question.n]:
            ids = tuple(choice.token_ids)
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

    def _wake(self) -> None:
        if self._sleeps:
            self._engine.wake_up()

    def _rest(self) -> None:
        if self._sleeps:
            self._engine.sleep(level=1)

    @property
    def _sleeps(self) -> bool:
        return self._settings.sleep and bool(self._engine.llm_engine.model_config.enable_sleep_mode)


def _logprobs(ids: Sequence[int], given: Sequence[Mapping[int, Any]] | None) -> tuple[float, ...] | None:
    """The sampled tokens' own; None where one is missing."""
    if given is None or len(given) != len(ids):
        return None
    found = [row.get(token) for token, row in zip(ids, given, strict=True)]
    return None if any(one is None for one in found) else tuple(float(one.logprob) for one in found if one is not None)


def _refusal(error: Exception) -> Exception:
    """What vLLM says of a prompt that is too long, named as such."""
    text = first_line(error)
    too_long = "maximum context length" in text or "maximum model length" in text
    return AskError("context_overflow", f"vLLM: {text}") if too_long else error
