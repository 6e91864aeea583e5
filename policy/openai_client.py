"""Any OpenAI-compatible server as a `ChatModel`, through the `openai` package (imported when a client is made).

Retries with jittered backoff, `Retry-After` and connection pooling are that package's; limits, costs, redaction and
what vLLM adds to the protocol are ours.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Literal, TypeVar

from pydantic import Field

from evaluator.errors import EnvironmentUnusableError
from evaluator.types import Frozen
from policy import openai_wire as wire
from policy.chat import Answer, AskError, Question
from policy.ledger import Ledger, Prices
from policy.openai_errors import ask_error
from policy.outcomes import LASTING
from policy.rate_limit import RateLimit
from policy.secret import ApiKey

ResultT = TypeVar("ResultT")
SchemaField = Literal["response_format", "structured_outputs", "guided_json", "off"]
DEFAULT_CONTEXT = 8192
"""Tokens assumed where the server does not tell."""
LONGEST_WAIT = 120.0
"""Seconds the `openai` package waits at most for one `Retry-After`."""
ADAPTER_SECONDS = 60.0
"""For loading an adapter; unloading at the end must not hold a program up for long either."""


class OpenAISettings(Frozen):
    """Where to ask, what for, and how much of it."""

    model: str
    base_url: str = "http://localhost:8000/v1"
    api_key_env: str = "OPENAI_API_KEY"
    server: Literal["vllm", "openai"] = "vllm"
    """`vllm` also asks for token ids, which others refuse as an unknown field."""
    adapter: str | None = None
    """Name of a LoRA adapter, asked in place of the model."""
    adapter_path: str | None = None
    """Folder, on the server's machine, that the adapter is loaded from before the first question."""
    temperature: float = 0.8
    top_p: float = 0.95
    send_seed: bool = True
    logprobs: bool = True
    schema_field: SchemaField = "response_format"
    """The field that carries a JSON schema: the portable one, vLLM's own, or vLLM's before 0.12."""
    context_tokens: int | None = None
    extra_body: Mapping[str, Any] = Field(default_factory=dict)
    timeout_s: float = 120.0
    """Of one attempt."""
    retries: int = 3
    concurrency: int = 64
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    prices: tuple[float, float] = (0.0, 0.0)
    """Dollars per million tokens of prompts, of answers."""
    max_tokens_total: int | None = None
    max_dollars: float | None = None


def load_openai() -> ModuleType:
    """The `openai` package. Raises EnvironmentUnusableError when it is not installed."""
    try:
        import openai
    except ImportError:
        raise EnvironmentUnusableError(
            "policy.type openai needs the package openai, which is not installed", "pip install 'kernevo[llm]'"
        ) from None
    module: ModuleType = openai
    return module


class OpenAIClient:
    """Asks one server. Make it anywhere; use it on one event loop."""

    def __init__(self, settings: OpenAISettings) -> None:
        self.settings = settings
        self.key = ApiKey.from_environment(settings.api_key_env)
        self.ledger = Ledger(
            Prices(*settings.prices), max_tokens=settings.max_tokens_total, max_dollars=settings.max_dollars
        )
        self._openai = load_openai()
        self._opened: Any = None
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._requests = RateLimit(settings.requests_per_minute)
        self._tokens = RateLimit(settings.tokens_per_minute)
        self._adapter_turn = asyncio.Lock()
        self._loaded: list[str] = []
        self._context: asyncio.Future[int] | None = None

    @property
    def model(self) -> str:
        """The adapter's name where there is one."""
        return self.settings.adapter or self.settings.model

    @property
    def sampling(self) -> Mapping[str, Any]:
        """Stored with every answer."""
        told: dict[str, Any] = {"temperature": self.settings.temperature, "top_p": self.settings.top_p}
        told |= {name: value for name, value in self.settings.extra_body.items() if name in ("top_k", "min_p")}
        return told if self.settings.send_seed else {**told, "seed": None}

    def spent(self) -> Mapping[str, float]:
        """Tokens and dollars of this client so far."""
        return self.ledger.summary()

    async def context_tokens(self) -> int:
        """What the settings say, else what the server says (vLLM does), else `DEFAULT_CONTEXT`.

        Asked once, however many wait for it. Raises AskError for a server that cannot be asked anything.
        """
        if self.settings.context_tokens is not None:
            return self.settings.context_tokens
        known = self._context
        if known is None or (known.done() and (known.cancelled() or known.exception() is not None)):
            known = self._context = asyncio.ensure_future(self._context_of_server())
        return await asyncio.shield(known)

    async def _context_of_server(self) -> int:
        try:
            lengths = await self.models()
        except AskError as error:
            if error.reason in LASTING:
                raise
            return DEFAULT_CONTEXT  # not every server lists its models
        return lengths.get(self.model) or lengths.get(self.settings.model) or DEFAULT_CONTEXT

    async def models(self) -> dict[str, int | None]:
        """Names that the server answers to -> tokens of context, where it tells. Raises AskError."""
        raw = await self._call("models", self._sdk.models.with_raw_response.list)
        return self._read(wire.models, raw)

    async def ask(self, question: Question) -> list[Answer]:
        """The answers to one question. Raises AskError; what it then says names the models there are."""
        most = question.n * question.max_tokens
        async with self._slots:
            with self.ledger.reserved(question.prompt_tokens, most):
                await self._requests.take()
                await self._tokens.take(question.prompt_tokens + most)
                await self._load_adapter()
                raw = await self._completion(question)
                return self._booked(self._read(lambda text: wire.answers(text, question), raw))

    async def _completion(self, question: Question) -> str:
        create = self._sdk.chat.completions.with_raw_response.create
        try:
            return await self._call("chat/completions", create, **self._arguments(question))
        except AskError as error:
            raise await self._explained(error) from None

    def _booked(self, answers: list[Answer]) -> list[Answer]:
        prompt, completion = answers[0].prompt_tokens, sum(answer.completion_tokens for answer in answers)
        self.ledger.spend(prompt, completion)
        cost = self.ledger.prices.cost
        return [
            wire.with_cost(answer, cost(prompt / len(answers), answer.completion_tokens), self.key.redact)
            for answer in answers
        ]

    def _arguments(self, question: Question) -> dict[str, Any]:
        settings = self.settings
        extra: dict[str, Any] = dict(settings.extra_body)
        limit = "max_completion_tokens" if settings.server == "openai" else "max_tokens"
        arguments: dict[str, Any] = {
            "model": self.model,
            "messages": list(question.conversation) or [message.model_dump() for message in question.messages],
            "n": question.n,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            limit: question.max_tokens,
        }
        if settings.send_seed and question.seed is not None:
            arguments["seed"] = question.seed
        if question.tools:
            arguments["tools"] = list(question.tools)
        if settings.logprobs:
            arguments["logprobs"] = True
        if settings.server == "vllm":
            extra.setdefault("return_token_ids", True)
        if question.schema is not None:
            wire.add_schema(arguments, extra, settings.schema_field, question.schema)
        return {**arguments, "extra_body": extra}

    @property
    def _sdk(self) -> Any:
        if self._opened is None:
            self._opened = self._openai.AsyncOpenAI(
                base_url=self.settings.base_url,
                api_key=self.key.reveal(),
                timeout=self.settings.timeout_s,
                max_retries=self.settings.retries,
            )
        return self._opened

    async def _call(self, path: str, call: Any, *args: Any, **kwargs: Any) -> str:
        """The body of one answer. Every way in which HTTP fails is an AskError without the key in it."""
        settings = self.settings
        where = f"{settings.base_url.rstrip('/')}/{path}"
        try:
            # The package's timeout is for each read: a server that sends a byte now and then would never meet it.
            async with asyncio.timeout(
                2 * settings.timeout_s * (settings.retries + 1) + LONGEST_WAIT * settings.retries
            ):
                response = await call(*args, **kwargs)
            return response if isinstance(response, str) else str(response.http_response.text)
        except TimeoutError:
            raise AskError("timeout", f"{where}: no answer in time", "raise policy.timeout_s") from None
        except self._openai.OpenAIError as error:
            raise ask_error(error, self._openai, where, self.model, settings, self.key) from None

    def _read(self, read: Callable[[str], ResultT], raw: str) -> ResultT:
        try:
            return read(raw)
        except ValueError as error:
            first = self.key.redact(str(error)).splitlines()[0]
            raise AskError(
                "bad_response",
                f"{self.settings.base_url}: not an answer of an OpenAI-compatible server: {first}",
                "policy.base_url usually ends in /v1; the server's log may say more",
            ) from None

    async def _explained(self, error: AskError) -> AskError:
        """A wrong model's error with the names that would be right."""
        if error.reason != "wrong_model":
            return error
        self._loaded.clear()  # a server that was started again has forgotten them
        try:
            names = list(await self.models())
        except AskError:
            return error
        return AskError(error.reason, error.message, f"set policy.model to one of: {', '.join(names[:20])}")

    async def _load_adapter(self) -> None:
        settings = self.settings
        if settings.adapter is None or settings.adapter_path is None:
            return
        async with self._adapter_turn:
            if settings.adapter not in self._loaded:
                await self.load_adapter(settings.adapter, settings.adapter_path)
                self._loaded.append(settings.adapter)
            # Questions that are still in flight may be for the adapter before.
            while len(self._loaded) > 2:
                await self.unload_adapter(self._loaded.pop(0))

    def use_adapter(self, name: str, path: str | None) -> None:
        """Ask for another adapter from the next question on; with a path, vLLM loads it from there first."""
        self.settings = self.settings.model_copy(update={"adapter": name, "adapter_path": path})

    async def load_adapter(self, name: str, path: str) -> None:
        """Have vLLM load a LoRA adapter; one of that name that is loaded already is replaced. Raises AskError."""
        body = {"lora_name": name, "lora_path": path}
        try:
            await self._adapter_call("load_lora_adapter", body)
        except AskError as error:
            if "already" not in error.message:
                raise
            await self.unload_adapter(name)
            await self._adapter_call("load_lora_adapter", body)

    async def unload_adapter(self, name: str) -> None:
        """Have vLLM forget a LoRA adapter. Raises AskError."""
        await self._adapter_call("unload_lora_adapter", {"lora_name": name})

    async def _adapter_call(self, path: str, body: Mapping[str, str]) -> None:
        sdk = self._sdk.with_options(max_retries=0, timeout=min(ADAPTER_SECONDS, self.settings.timeout_s))
        try:
            await self._call(path, sdk.post, f"/{path}", body=body, cast_to=str)
        except AskError as error:
            if error.reason in ("unreachable", "timeout", "refused"):
                raise
            needs = "--enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
            hint = f"vLLM needs {needs}, and the folder on its own machine"
            raise AskError("adapter", f"adapter {body['lora_name']}: {error.message}", hint) from None

    async def close(self) -> None:
        """Unload the adapters that were loaded here, and close connections; safe to call twice."""
        if self._opened is None:
            return
        while self._loaded:
            with contextlib.suppress(AskError):  # a server that is gone holds no adapter
                await self.unload_adapter(self._loaded.pop())
        await self._opened.close()
        self._opened = self._context = None
