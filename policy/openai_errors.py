"""From the `openai` package's exceptions to ours: what kind of failure, in the server's words, and the fix."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from policy.chat import AskError, FailureReason
from policy.secret import ApiKey

if TYPE_CHECKING:
    from policy.openai_client import OpenAISettings

_LONGEST = 300
_OVERFLOW = re.compile(
    r"context[ _]length|context window|max(imum)?[ _]model[ _]len|too large|prompt is too long", re.I
)
_DOCTOR = "`kernevo doctor --policy CONFIG` checks the server"


def ask_error(
    error: Exception, openai: ModuleType, where: str, model: str, settings: OpenAISettings, key: ApiKey
) -> AskError:
    """The AskError that tells of `error`, without the key in it."""
    if isinstance(error, openai.APITimeoutError):
        what = f"{where}: no answer within {settings.timeout_s:g} s, {settings.retries + 1} times"
        return AskError("timeout", what, "raise policy.timeout_s, or lower policy.max_tokens or policy.concurrency")
    if isinstance(error, openai.APIConnectionError):
        cause = key.redact(_one_line(error.__cause__ or error))
        return AskError("unreachable", f"{where}: cannot be reached: {cause}", f"start the server; {_DOCTOR}")
    if isinstance(error, openai.APIStatusError):
        status, words = _facts(error)
        reason = _reason(status, words)
        said = key.redact(words)
        return AskError(reason, f"{where}: {status}: {said}", _hint(reason, model, settings))
    return AskError("bad_response", f"{where}: {key.redact(_one_line(error))}", _DOCTOR)


def _facts(error: Any) -> tuple[int, str]:
    body = error.body
    if isinstance(body, Mapping) and isinstance(body.get("message"), str):
        return error.status_code, _one_line(body["message"])
    return error.status_code, _one_line(error.message)


def _one_line(error: object) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _reason(status: int, words: str) -> FailureReason:
    if status in (401, 403):
        return "refused"
    if status == 404:
        return "wrong_model" if "model" in words.lower() else "bad_response"
    if status == 413 or (status in (400, 422) and _OVERFLOW.search(words)):
        return "context_overflow"
    if status == 429:
        return "rate_limited"
    return "server_error" if status >= 500 or status in (408, 409) else "bad_request"


def _hint(reason: FailureReason, model: str, settings: OpenAISettings) -> str:
    return {
        "refused": f"put a key that this server takes into ${settings.api_key_env}",
        "wrong_model": f"the server does not know {model!r}; {_DOCTOR}",
        "bad_response": "policy.base_url usually ends in /v1",
        "context_overflow": "lower policy.context_tokens or policy.max_tokens, or serve with a longer context",
        "rate_limited": "set policy.requests_per_minute or policy.tokens_per_minute to what the server allows",
        "server_error": "the server's log says why",
    }.get(reason, _DOCTOR)
