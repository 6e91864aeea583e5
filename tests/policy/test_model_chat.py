import asyncio
import json

import pytest

from evaluator.task import load_task
from evaluator.types import KernelSource
from policy.chat import AskError
from policy.loop_thread import LoopThread
from policy.model_chat import ModelChat
from policy.openai_client import OpenAIClient, OpenAISettings
from policy.review import Reviewer, answer_schema
from policy.tokens import ByRatio
from policy.tool_chat import run_with_tools
from policy.tools import DocumentLibrary, ToolBox, ToolSources
from policy.tools.documents import Passage
from tests.policy.fake_server import MODEL, FakeServer, calls, error, hangs, says

ASKED = [{"role": "user", "content": "how is dot called?"}]
ACCEPTS = json.dumps({"verdict": "accept", "kind": None, "reason": "Honest.", "evidence": []})


@pytest.fixture
def chat_with():
    """Makes a chat on a fake server; everything is closed afterwards."""
    opened = []

    def make(*script, models=None, **settings):
        server = FakeServer(script, models=models)
        where = {"model": MODEL, "base_url": server.url, "retries": 0, "timeout_s": 60.0, **settings}
        loop, client = LoopThread("test"), OpenAIClient(OpenAISettings(**where))
        opened.append((server, loop, client))
        return server, ModelChat(client, loop, max_tokens=100, tokens=ByRatio(), seed=7)

    yield make
    for server, loop, client in opened:
        loop.close(client.close())
        server.close()


def test_a_model_on_a_server_calls_a_tool_and_reads_its_answer(chat_with):
    server, chat = chat_with(calls("search_documents", {"query": "dot"}), says("tl.dot(a, b)"))
    library = DocumentLibrary(reference=lambda: [Passage(title="tl.dot", text="tl.dot(input, other)")])
    toolbox = ToolBox.of(["search_documents"], ToolSources(documents=library))
    talk = run_with_tools(chat, ASKED, toolbox, max_rounds=3)
    assert talk.text == "tl.dot(a, b)"
    first, second = server.requests
    assert first["tools"] == second["tools"] == toolbox.definitions()
    assert first["messages"] == ASKED
    assert second["messages"][1]["tool_calls"][0]["function"]["name"] == "search_documents"
    assert second["messages"][2]["tool_call_id"] == "call-1"
    assert "tl.dot(input, other)" in second["messages"][2]["content"]
    assert second["seed"] == 7
    assert talk.usage.prompt_tokens == 20


def test_a_review_is_held_to_its_schema_by_the_server(chat_with):
    server, chat = chat_with(says(ACCEPTS))
    task = load_task("softmax")
    review = Reviewer(chat).review(KernelSource(text=task.seed_source), task)
    assert (review.outcome, review.reviewer) == ("no_objection", MODEL)
    assert server.requests[0]["response_format"]["json_schema"]["schema"] == answer_schema()
    assert "tools" not in server.requests[0]


def test_a_server_that_fails_is_no_objection(chat_with):
    _, chat = chat_with(error(500, "out of order"))
    task = load_task("softmax")
    assert Reviewer(chat).review(KernelSource(text=task.seed_source), task).outcome == "failed"


def test_a_key_that_a_server_puts_into_a_call_is_cut_out(chat_with, monkeypatch):
    monkeypatch.setenv("A_KEY", "sk-very-secret")
    _, chat = chat_with(calls("look", {"query": "sk-very-secret"}), api_key_env="A_KEY")
    (call,) = chat.complete(ASKED, [{"type": "function"}], None).tool_calls
    assert "sk-very-secret" not in call.arguments


def test_a_conversation_that_leaves_little_context_gets_short_answers_and_then_none(chat_with):
    server, chat = chat_with(models={MODEL: 60})
    chat.complete(ASKED, None, None)
    assert 0 < server.requests[0]["max_tokens"] < 60
    with pytest.raises(AskError, match="fills its context"):
        chat.complete([{"role": "user", "content": "word " * 500}], None, None)


def test_a_loop_that_is_stopped_ends_the_wait(chat_with):
    async def nothing():
        return None

    class Stopping(OpenAIClient):
        async def context_tokens(self):
            raise asyncio.CancelledError

    server, _ = chat_with(hangs)
    loop = LoopThread("stopping")
    client = Stopping(OpenAISettings(model=MODEL, base_url=server.url))
    chat = ModelChat(client, loop, max_tokens=10, tokens=ByRatio())
    with pytest.raises(AskError, match="stopped"):
        chat.complete(ASKED, None, None)
    loop.close(nothing())
