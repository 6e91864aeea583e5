"""A model of `transformers` in this process, as a `ChatModel`; `policy.local_chat` says how it is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from policy import finite_schema
from policy.chat import Answer, AskError, Question
from policy.local_chat import LocalChat, first_line
from policy.token_trie import Node, trie
from policy.transformers_engine import TransformersEngine, TransformersSettings, load
from policy.transformers_generate import Job, Sample

REMEMBERED = 32
"""Schemas whose answers are kept as tokens: children of one parent ask with the same one."""


class TransformersChat(LocalChat):
    """Answers questions with `transformers`. The model is loaded by the first question.

    An answer's `logprobs` are of the distribution that its tokens were drawn from: after temperature, top_k and top_p,
    and among the tokens that its schema allows. `model_logprobs` are the model's own, at temperature 1 over all tokens.
    A schema must allow answers that can be listed (`policy.finite_schema`).
    """

    def __init__(
        self,
        settings: TransformersSettings,
        *,
        alone: Callable[[], AbstractContextManager[None]] = nullcontext,
        load_engine: Callable[[TransformersSettings], TransformersEngine] = load,
    ) -> None:
        """`alone` is held while the model works; see `policy.local_chat.gpu_guard`."""
        super().__init__("transformers", alone=alone)
        self._settings, self._load = settings, load_engine
        self._engine: TransformersEngine | None = None
        self._model = settings.adapter or settings.model
        self._known: dict[str, Node] = {}

    @property
    def model(self) -> str:
        """The adapter that answers, by its name; the model's folder where there is none."""
        return self._model

    @property
    def sampling(self) -> Mapping[str, Any]:
        """Temperature, top_p and top_k, and what `logprobs` are of."""
        settings = self._settings
        cut = {} if settings.top_k is None else {"top_k": settings.top_k}
        return {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            **cut,
            "logprobs_of": "the distribution drawn from",
        }

    async def use_adapter(self, name: str, path: str | None) -> None:
        """Answer the questions that come after this with the adapter in folder `path`, or with the model when None.

        Answers carry `name`, or the model's folder. Raises AskError for an adapter that cannot be used; the one before
        stays in use.
        """
        await asyncio.wrap_future(self._put(lambda: self._swap(name, path)))

    def _swap(self, name: str, path: str | None) -> None:
        assert self._engine is not None
        self._engine.use_adapter(name, path)
        self._model = self._settings.model if path is None else name

    def _open(self) -> None:
        self._engine = self._load(self._settings)

    def _drop(self) -> None:
        self._engine = None

    def _limit(self) -> int:
        assert self._engine is not None
        return self._engine.context_tokens

    def _wake(self) -> None:
        assert self._engine is not None
        self._engine.wake()

    def _rest(self) -> None:
        assert self._engine is not None
        self._engine.rest()

    def _answers(self, questions: Sequence[Question]) -> list[list[Answer] | Exception]:
        assert self._engine is not None
        made: list[Job | Exception] = [self._job(question, self._engine) for question in questions]
        samples = iter(self._engine.generate([job for job in made if isinstance(job, Job)]))
        return [self._told(job, next(samples)) if isinstance(job, Job) else job for job in made]

    def _job(self, question: Question, engine: TransformersEngine) -> Job | Exception:
        tokenizer = engine.tokenizer
        try:
            messages = [message.model_dump() for message in question.messages]
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            prompt = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
            held = None if question.schema is None else self._held(question, tokenizer)
        except AskError as error:
            return error
        except Exception as error:  # a template may refuse messages in any way
            return AskError("bad_request", f"{self._settings.model}: {first_line(error)}")
        if len(prompt) + question.max_tokens > engine.context_tokens:
            return AskError(
                "context_overflow",
                f"{self._settings.model}: a prompt of {len(prompt)} tokens and {question.max_tokens} for the answer "
                f"are more than its context of {engine.context_tokens}",
            )
        return Job(prompt, question.n, question.max_tokens, question.seed, held)

    def _held(self, question: Question, tokenizer: Any) -> Node:
        """What may follow what in an answer. Raises AskError for a schema that no answer can be held to."""
        key = json.dumps([question.schema, question.max_tokens])
        if key not in self._known:
            made = self._listed(question, tokenizer)
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[key] = made
        return self._known[key]

    def _listed(self, question: Question, tokenizer: Any) -> Node:
        assert question.schema is not None
        try:
            values = finite_schema.values(question.schema)
        except finite_schema.EndlessSchemaError as error:
            hint = "set policy.max_steps: 1 with form: structured; vLLM holds answers to any schema"
            raise AskError("bad_request", f"transformers: {error}", hint) from None
        # Written as the rule policy writes its answers, which models are trained on.
        texts = [json.dumps(value, ensure_ascii=False, separators=(",", ":")) for value in values]
        tokens = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
        fitting = [pair for pair in zip(texts, tokens, strict=True) if len(pair[1]) < question.max_tokens]
        if not fitting:
            raise AskError(
                "bad_request",
                f"transformers: none of the {len(texts)} answers that the schema allows fits into "
                f"{question.max_tokens} tokens",
                "raise policy.max_tokens",
            )
        return trie(fitting, tokenizer.eos_token_id)

    def _told(self, job: Job, samples: Sequence[Sample]) -> list[Answer]:
        assert self._engine is not None
        return [
            Answer(
                text=self._text(sample, self._engine) if sample.text is None else sample.text,
                finish_reason=sample.finish_reason,
                model=self.model,
                asked_model=self.model,
                prompt_tokens=len(job.prompt),
                completion_tokens=len(sample.tokens),
                prompt_token_ids=job.prompt,
                answer_token_ids=tuple(sample.tokens),
                logprobs=tuple(sample.logprobs),
                model_logprobs=tuple(sample.model_logprobs),
            )
            for sample in samples
        ]

    def _text(self, sample: Sample, engine: TransformersEngine) -> str:
        ended = sample.finish_reason == "stop"
        tokens = sample.tokens[:-1] if ended else sample.tokens
        return str(engine.tokenizer.decode(tokens, skip_special_tokens=True))
