"""vLLM in process, with an engine that stands in for it; the real one is in test_vllm_real.py."""

from __future__ import annotations

import asyncio
import sys
import threading
import types
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from evaluator.errors import EnvironmentUnusableError
from policy.chat import AskError, Question
from policy.testing import PolicyTestCase
from policy.types import Message
from policy.vllm_chat import VllmChat, VllmSettings, load
from policy.vllm_policy import VllmPolicy

SETTINGS = VllmSettings(model="somewhere/model", temperature=0.5, send_seed=True)


@dataclass
class Params:
    """vLLM's SamplingParams as far as they are used."""

    n: int
    temperature: float
    top_p: float
    max_tokens: int
    seed: int | None
    logprobs: int
    structured_outputs: object


@dataclass
class Held:
    """vLLM's StructuredOutputsParams."""

    json: dict


@pytest.fixture(autouse=True)
def vllm(monkeypatch):
    module, parameters = types.ModuleType("vllm"), types.ModuleType("vllm.sampling_params")
    module.SamplingParams, parameters.StructuredOutputsParams = Params, Held
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", parameters)


@dataclass
class Engine:
    """Answers with what it was asked last; refuses what is longer than its context."""

    sleep_mode: bool = False
    context: int = 100
    calls: list = field(default_factory=list)
    log: list = field(default_factory=list)
    gate: threading.Event | None = None
    entered: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self):
        config = SimpleNamespace(max_model_len=self.context, enable_sleep_mode=self.sleep_mode)
        self.llm_engine = SimpleNamespace(model_config=config)

    def chat(self, conversations, params, use_tqdm):
        self.entered.set()
        if self.gate is not None:
            assert self.gate.wait(30)
        self.log.append("chat")
        self.calls.append((conversations, params))
        if any(len(one[-1]["content"]) > self.context for one in conversations):
            raise ValueError("This model's maximum context length is 100 tokens. However …")
        return [self.output(one, each) for one, each in zip(conversations, params, strict=True)]

    def output(self, conversation, params):
        answer = SimpleNamespace(
            text=conversation[-1]["content"].upper(),
            token_ids=[7, 8],
            logprobs=[{7: SimpleNamespace(logprob=-0.5)}, {8: SimpleNamespace(logprob=-1.5)}],
            finish_reason="stop",
        )
        return SimpleNamespace(prompt_token_ids=[1, 2, 3], outputs=[answer] * params.n)

    def sleep(self, level):
        self.log.append("sleep")

    def wake_up(self):
        self.log.append("wake")


def question(text: str, **changes) -> Question:
    return Question((Message(role="user", content=text),), 3, 16, **changes)


def chat(engine, **options) -> VllmChat:
    return VllmChat(SETTINGS, load_engine=lambda settings: engine, **options)


def ask(model, *questions):
    async def every():
        try:
            return await asyncio.gather(*(model.ask(one) for one in questions), return_exceptions=True)
        finally:
            await model.close()

    return asyncio.run(every())


def test_an_answer_carries_tokens_and_logprobs():
    ((first, second),) = ask(chat(Engine()), question("hello", n=2, seed=3))
    assert first == second
    assert (first.text, first.finish_reason) == ("HELLO", "stop")
    assert (first.prompt_token_ids, first.answer_token_ids, first.logprobs) == ((1, 2, 3), (7, 8), (-0.5, -1.5))


def test_a_schema_seed_and_sampling_reach_the_engine():
    engine = Engine()
    ask(chat(engine), question("x", seed=11, schema={"type": "object"}))
    ((_, (params,)),) = engine.calls
    assert (params.seed, params.temperature, params.max_tokens) == (11, 0.5, 16)
    assert params.structured_outputs == Held(json={"type": "object"})


def test_questions_that_wait_together_are_answered_in_one_call():
    engine = Engine(gate=threading.Event())
    model = chat(engine)

    async def run():
        first = asyncio.ensure_future(model.ask(question("first")))
        await asyncio.get_running_loop().run_in_executor(None, engine.entered.wait, 30)
        others = [asyncio.ensure_future(model.ask(question(f"later {n}"))) for n in range(5)]
        while model._asked.qsize() < 5:
            await asyncio.sleep(0)
        engine.gate.set()
        answers = [answer.text for given in await asyncio.gather(first, *others) for answer in given]
        await model.close()
        return answers

    assert asyncio.run(run()) == ["FIRST", *(f"LATER {n}" for n in range(5))]
    assert [len(conversations) for conversations, _ in engine.calls] == [1, 5]


def test_one_prompt_that_is_too_long_spoils_no_other():
    good, bad, also = ask(chat(Engine()), question("a"), question("b" * 200), question("c"))
    assert (good[0].text, also[0].text) == ("A", "C")
    assert isinstance(bad, AskError)
    assert bad.reason == "context_overflow"


def test_the_engine_sleeps_between_calls_and_works_under_the_guard():
    engine = Engine(sleep_mode=True)

    @contextmanager
    def alone():
        engine.log.append("alone")
        yield
        engine.log.append("free")

    ask(chat(engine, alone=alone), question("x"))
    loading, working = ["alone", "sleep", "free"], ["alone", "wake", "chat", "sleep", "free"]
    assert engine.log == loading + working


def test_an_engine_that_fails_sleeps_again_and_says_why():
    engine = Engine(sleep_mode=True)
    engine.chat = lambda *_, **__: (_ for _ in ()).throw(RuntimeError("CUDA error: out of memory"))
    (error,) = ask(chat(engine), question("x"))
    assert isinstance(error, AskError)
    assert error.reason == "server_error"
    assert "out of memory" in error.message
    assert engine.log[-1] == "sleep"


def test_a_model_that_cannot_be_loaded_is_tried_once():
    tries = []

    def fail(settings):
        tries.append(settings.model)
        raise EnvironmentUnusableError("vLLM cannot load it", "check policy.model")

    found = ask(VllmChat(SETTINGS, load_engine=fail), question("x"), question("y"))
    assert [error.reason for error in found] == ["unreachable"] * 2
    assert tries == ["somewhere/model"]


def test_the_context_is_the_engines():
    model = chat(Engine(context=64))

    async def run():
        found = await model.context_tokens()
        await model.close()
        await model.close()
        return found

    assert asyncio.run(run()) == 64


def test_without_vllm_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EnvironmentUnusableError, match="package vllm") as raised:
        load(SETTINGS)
    assert "pip install" in raised.value.hint


class Choosing(Engine):
    """Answers with the first step that its schema allows and that was not answered before."""

    def output(self, conversation, params):
        steps = params.structured_outputs.json["properties"]["steps"]["items"]["enum"]
        found = super().output(conversation, params)
        texts = [f'{{"steps": [{_json(steps[(params.seed + n) % len(steps)])}]}}' for n in range(params.n)]
        found.outputs = [SimpleNamespace(**{**vars(found.outputs[0]), "text": text}) for text in texts]
        return found


def _json(value) -> str:
    import json

    return json.dumps(value)


class TestVllmPolicy(PolicyTestCase):
    def make_policy(self):
        policy = VllmPolicy(SETTINGS)
        policy._chat._load = lambda settings: Choosing(context=100_000)
        return policy
