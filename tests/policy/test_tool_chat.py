import pytest

from evaluator.errors import KernevoError
from policy.tool_chat import CALLS_PER_ROUND, run_with_tools
from tests.policy.chats import FakeChat, calling

ASKED = [{"role": "user", "content": "write a kernel"}]


class Box:
    """Answers every call with its name."""

    def __init__(self, names=("look",)):
        self._names = names

    def definitions(self):
        return [{"type": "function", "function": {"name": name}} for name in self._names]

    def call(self, name, arguments_json):
        return f"{name}({arguments_json})"


def test_an_answer_without_calls_ends_the_conversation():
    chat = FakeChat("done")
    talk = run_with_tools(chat, ASKED, Box(), max_rounds=3)
    assert (talk.text, talk.rounds, len(chat.asked)) == ("done", 0, 1)
    assert talk.messages == (*ASKED, {"role": "assistant", "content": "done"})


def test_the_model_reads_the_answer_of_the_tool_that_it_called():
    chat = FakeChat(calling(("look", {"a": 1})), "done")
    talk = run_with_tools(chat, ASKED, Box(), max_rounds=3)
    request, result = chat.asked[1]["messages"][1:]
    assert request["tool_calls"][0] == {
        "id": "call0",
        "type": "function",
        "function": {"name": "look", "arguments": '{"a": 1}'},
    }
    assert result == {"role": "tool", "tool_call_id": "call0", "content": 'look({"a": 1})'}
    assert (talk.text, talk.rounds) == ("done", 1)


def test_after_the_last_round_it_is_asked_without_tools():
    chat = FakeChat(calling(("look", {})))
    talk = run_with_tools(chat, ASKED, Box(), max_rounds=2)
    assert [bool(asked["tools"]) for asked in chat.asked] == [True, True, False]
    assert talk.rounds == 2
    assert "tool_calls" not in talk.messages[-1]


def test_without_rounds_or_tools_no_tool_is_offered():
    for box, rounds in ((Box(), 0), (Box(names=()), 3)):
        chat = FakeChat(calling(("look", {})))
        run_with_tools(chat, ASKED, box, max_rounds=rounds)
        assert [asked["tools"] for asked in chat.asked] == [None]


def test_every_call_is_answered_and_only_the_first_ones_are_done():
    chat = FakeChat(calling(*[("look", {})] * (CALLS_PER_ROUND + 2)), "done")
    run_with_tools(chat, ASKED, Box(), max_rounds=1)
    results = [message for message in chat.asked[1]["messages"] if message["role"] == "tool"]
    assert [result["tool_call_id"] for result in results] == [f"call{n}" for n in range(CALLS_PER_ROUND + 2)]
    assert [result["content"].startswith("look(") for result in results] == [True] * CALLS_PER_ROUND + [False] * 2


def test_tokens_of_all_answers_are_added_up():
    talk = run_with_tools(FakeChat(calling(("look", {})), "done"), ASKED, Box(), max_rounds=1)
    assert (talk.usage.prompt_tokens, talk.usage.completion_tokens) == (20, 6)


def test_the_given_messages_stay_as_they_were():
    given = [dict(message) for message in ASKED]
    run_with_tools(FakeChat(calling(("look", {})), "done"), given, Box(), max_rounds=1)
    assert given == ASKED


def test_a_server_that_fails_is_the_callers_affair():
    with pytest.raises(KernevoError, match="server is down"):
        run_with_tools(FakeChat(KernevoError("server is down")), ASKED, Box(), max_rounds=1)
