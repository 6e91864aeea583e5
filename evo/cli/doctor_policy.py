"""`kernevo doctor --policy CONFIG`: one small question to each model server before a campaign spends anything."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.cli.check import Check, State

if TYPE_CHECKING:
    from evo.config import OpenAIPolicyConfig, TransformersPolicyConfig, VllmPolicyConfig
    from policy.chat import Answer
    from policy.openai_client import OpenAIClient

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"ready": {"type": "boolean"}},
    "required": ["ready"],
    "additionalProperties": False,
}
_QUESTION = 'Answer with the JSON object {"ready": true} and nothing else.'
_TOKENS = 32
_SHOWN = 20


def policy_checks(path: str) -> list[Check]:
    """Findings on every policy of a config. Raises UsageError for a config that is wrong."""
    from evo.config_file import load_config

    checks: list[Check] = []
    policies = load_config(path).policies
    for number, policy in enumerate(policies, start=1):
        name = f"policy {number}" if len(policies) > 1 else "policy"
        if policy.type == "vllm":
            checks.append(_vllm(policy)._replace(name=f"{name}: vllm"))
        elif policy.type == "transformers":
            checks += [check._replace(name=f"{name}: {check.name}") for check in _transformers(policy)]
        elif policy.type != "openai":
            checks.append(Check(name, "ok", f"{policy.type}, needs no server"))
        else:
            checks += [check._replace(name=f"{name}: {check.name}") for check in asyncio.run(_server(policy))]
    return checks


def _vllm(config: VllmPolicyConfig) -> Check:
    """Whether vLLM and the model are there; loading it takes too long for a look."""
    if importlib.util.find_spec("vllm") is None:
        return Check("", "fail", "the package vllm is not installed", "pip install 'kernevo[vllm]'")
    folder = Path(config.model)
    if folder.is_dir() and not (folder / "config.json").is_file():
        return Check("", "fail", f"{folder} holds no config.json", "set policy.model to the folder of a model")
    found = "is there" if folder.is_dir() else "is no folder here; vLLM will look for a model of that name"
    return Check("", "ok" if folder.is_dir() else "warn", f"{config.model} {found}")


def _transformers(config: TransformersPolicyConfig) -> list[Check]:
    """Whether the packages, the model, the adapter and the device are there; the model is not loaded."""
    from evaluator.errors import EnvironmentUnusableError
    from policy.transformers_engine import device_of

    # The packages were looked for when the config was read.
    checks = [_model_folder(config)]
    if config.adapter is not None:
        there = (Path(config.adapter) / "adapter_config.json").is_file()
        said = "is there" if there else "holds no adapter_config.json"
        fix = "" if there else "set policy.adapter to the folder of a LoRA adapter"
        checks.append(Check("adapter", "ok" if there else "fail", f"{config.adapter} {said}", fix))
    try:
        checks.append(Check("device", "ok", device_of(config.device)))
    except EnvironmentUnusableError as error:
        checks.append(Check("device", "fail", error.message, error.hint))
    return checks


def _model_folder(config: TransformersPolicyConfig) -> Check:
    folder = Path(config.model)
    if not (folder / "config.json").is_file():
        return Check("model", "fail", f"{folder} holds no config.json", "set policy.model to the folder of a model")
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        return Check("model", "fail", f"{folder}: no readable tokenizer: {reason}", "put the tokenizer into the folder")
    if tokenizer.chat_template is None:
        fix = "use a model that was tuned for chat, or put a chat_template.jinja into the folder"
        return Check("model", "fail", f"{folder}: its tokenizer has no chat template", fix)
    return Check("model", "ok", f"{folder} is there, with a chat template")


async def _server(config: OpenAIPolicyConfig) -> list[Check]:
    """Findings on one server; after a failure nothing more is asked."""
    from evo.build import openai_settings
    from policy.openai_client import OpenAIClient

    client = OpenAIClient(openai_settings(config))
    checks = [_key(client, config)]
    try:
        checks += await _models(client, config)
        if all(check.state != "fail" for check in checks):
            checks.append(await asyncio.to_thread(_counting, config))
            checks += await _question(client, config)
    finally:
        await client.close()
    return checks


def _key(client: OpenAIClient, config: OpenAIPolicyConfig) -> Check:
    said = "is set" if client.key.is_set else "is not set, which suits servers without keys"
    return Check("key", "info", f"${config.api_key_env} {said}")


async def _models(client: OpenAIClient, config: OpenAIPolicyConfig) -> list[Check]:
    from policy.chat import AskError

    try:
        models = await client.models()
    except AskError as error:
        if error.reason in ("bad_response", "wrong_model", "bad_request"):
            return [Check("server", "warn", f"does not list its models: {error.message}", error.hint)]
        return [Check("server", "fail", error.message, error.hint)]
    names = ", ".join(list(models)[:_SHOWN])
    found = Check("server", "ok", f"{config.base_url} serves {names or 'nothing'}")
    # An adapter with a path is loaded by the question; until then the server knows the model alone.
    wanted = config.adapter if config.adapter and not config.adapter_path else config.model
    if wanted not in models:
        key = "adapter" if wanted == config.adapter else "model"
        return [
            found,
            Check("model", "fail", f"the server knows no {wanted!r}", f"set policy.{key} to one of: {names}"),
        ]
    context = config.context_tokens or models[wanted]
    return [found, Check("model", "ok", f"{wanted}, {context or 'an unknown number of'} tokens of context")]


def _counting(config: OpenAIPolicyConfig) -> Check:
    """How the lengths of prompts will be known."""
    from evo.build import token_counter
    from policy.tokens import FromServer

    if config.tokenizer is not None:
        return Check("prompt lengths", "info", f"counted with the tokenizer in {config.tokenizer}")
    counter = token_counter(config)
    counter.count(_QUESTION)
    counter.close()
    if isinstance(counter, FromServer) and counter.counts:
        return Check("prompt lengths", "ok", "counted by the server")
    fix = "policy.tokenizer: the folder that holds the model's tokenizer.json"
    return Check("prompt lengths", "info", "estimated, on the long side, so prompts are cut early", fix)


async def _question(client: OpenAIClient, config: OpenAIPolicyConfig) -> list[Check]:
    from policy.chat import AskError, Question
    from policy.types import Message

    structured = config.form == "structured" and config.json_schema != "off"
    question = Question(
        messages=(Message(role="user", content=_QUESTION),),
        prompt_tokens=_TOKENS,
        max_tokens=_TOKENS,
        seed=0,
        schema=_SCHEMA if structured else None,
    )
    began = time.monotonic()
    try:
        answer = (await client.ask(question))[0]
    except AskError as error:
        return [Check("answer", "fail", error.message, error.hint)]
    seconds = time.monotonic() - began
    speed = f"{answer.completion_tokens} tokens in {seconds:.2f} s, {answer.completion_tokens / seconds:.0f} tokens/s"
    checks = [Check("answer", "ok", f"{speed} for one request; ${answer.dollars:.6f}")]
    if structured:
        checks.append(_held(answer, config.json_schema))
    return [*checks, _facts(answer, config)]


def _held(answer: Answer, field: str) -> Check:
    """Whether the answer obeys its schema."""
    try:
        obeyed = set(json.loads(answer.text)) == {"ready"}
    except (ValueError, TypeError):
        obeyed = False
    if obeyed:
        return Check("structured answers", "ok", f"held to their schema by {field}")
    fix = "try another policy.json_schema; without a schema many answers of small models cannot be used"
    return Check("structured answers", "warn", f"the server ignores {field}: {answer.text[:60]!r}", fix)


def _facts(answer: Answer, config: OpenAIPolicyConfig) -> Check:
    """What learning needs and whether it was given."""
    given = {"log-probabilities": answer.logprobs, "token ids": answer.answer_token_ids}
    there = [name for name, value in given.items() if value is not None]
    missing = [name for name, value in given.items() if value is None]
    detail = "; ".join(
        part
        for part in (f"given: {', '.join(there)}" * bool(there), f"not given: {', '.join(missing)}" * bool(missing))
        if part
    )
    if not missing:
        return Check("for learning", "ok", detail)
    wanted = "policy.logprobs: true and policy.server: vllm, with vLLM 0.20 or later"
    state: State = "warn" if config.logprobs and answer.logprobs is None else "info"
    return Check("for learning", state, detail, f"{wanted}, give both; prompts and answers are stored either way")
