"""Counts tokens with vLLM's `/tokenize`, which its server offers beside the OpenAI-compatible API."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from policy.chat import AskError
from policy.openai_client import OpenAISettings, load_openai
from policy.openai_errors import ask_error
from policy.secret import ApiKey
from policy.tokens import FromServer

SECONDS = 10.0
"""For one count. Prompts are estimated where the server takes longer."""


class _Counted(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    count: int = Field(ge=0)


class Tokenize:
    """Asks a server how many tokens a text has, and waits for the answer; any thread may call it.

    Raises EnvironmentUnusableError when the package `openai` is not installed.
    """

    def __init__(self, settings: OpenAISettings) -> None:
        self._openai = load_openai()
        self._settings = settings
        self._key = ApiKey.from_environment(settings.api_key_env)
        # The server has it beside the API's own folder.
        self.url = f"{settings.base_url.rstrip('/').removesuffix('/v1')}/tokenize"
        self._opened: Any = None

    def __call__(self, text: str) -> int:
        """Tokens in `text`, without special tokens around it. Raises AskError."""
        # An adapter has its model's tokenizer, and may not be loaded yet.
        body = {"model": self._settings.model, "prompt": text, "add_special_tokens": False}
        try:
            answer = self._sdk.post(self.url, body=body, cast_to=str)
        except self._openai.OpenAIError as error:
            raise ask_error(error, self._openai, self.url, self._settings.model, self._settings, self._key) from None
        try:
            return _Counted.model_validate_json(answer).count
        except ValueError:
            raise AskError("bad_response", f"{self.url}: not an answer of vLLM") from None

    @property
    def _sdk(self) -> Any:
        if self._opened is None:
            self._opened = self._openai.OpenAI(
                base_url=self._settings.base_url, api_key=self._key.reveal(), timeout=SECONDS, max_retries=0
            )
        return self._opened

    def close(self) -> None:
        """Close connections; safe to call twice."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def server_tokens(settings: OpenAISettings) -> FromServer:
    """Counts by the server that the settings name."""
    asks = Tokenize(settings)
    return FromServer(asks, asks.close)
