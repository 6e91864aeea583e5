import sys
from types import SimpleNamespace
from unittest import mock

import pytest

from evaluator.errors import UsageError
from policy.chat import AskError
from policy.openai_client import OpenAISettings
from policy.openai_tokens import server_tokens
from policy.outcomes import Pause
from policy.tokens import PAUSE_S, ByRatio, FromServer, FromTokenizer
from tests.policy.fake_server import FakeServer, ReplyError


def test_the_ratio_rounds_up_and_counts_bytes():
    assert [ByRatio().count(text) for text in ("", "a", "a" * 5, "a" * 6)] == [0, 1, 2, 3]
    assert ByRatio().count("漢字") == ByRatio().count("a" * 6)
    assert ByRatio(2.0).count("abcd") == 2
    assert ByRatio().count("\ud800") == 2


@pytest.mark.parametrize("ratio", [0, -1, float("nan")])
def test_a_ratio_is_positive(ratio):
    with pytest.raises(UsageError, match="bytes_per_token"):
        ByRatio(ratio)


def test_a_server_is_asked_once_for_a_text():
    asked = []

    def ask(text):
        asked.append(text)
        return len(text.split())

    counter = FromServer(ask)
    assert [counter.count("a b"), counter.count("a b"), counter.count("a")] == [2, 2, 1]
    assert asked == ["a b", "a"]


def test_a_server_that_is_asked_much_is_not_remembered_without_end():
    counter = FromServer(len)
    for number in range(10_000):
        assert counter.count(str(number)) == len(str(number))
    assert len(counter._known) <= 256


def test_what_a_server_cannot_count_now_is_estimated_and_asked_again_later(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("policy.tokens.Pause", lambda seconds: Pause(seconds, lambda: clock[0]))
    asked = []

    def ask(text):
        asked.append(text)
        if len(asked) == 1:
            raise AskError("timeout", "late")
        return 7

    counter = FromServer(ask)
    assert [counter.count("a b c"), counter.count("a b c")] == [ByRatio().count("a b c")] * 2
    assert len(asked) == 1
    clock[0] += PAUSE_S
    assert counter.count("a b c") == 7
    assert counter.counts


def test_a_server_that_has_no_tokenizer_is_asked_once():
    asked = []

    def ask(text):
        asked.append(text)
        raise AskError("bad_response", "404: Not Found")

    counter = FromServer(ask)
    assert [counter.count(text) for text in ("abc", "abcdef")] == [ByRatio().count(text) for text in ("abc", "abcdef")]
    assert asked == ["abc"]
    assert not counter.counts


def test_a_text_that_a_server_refuses_is_estimated_alone():
    def ask(text):
        if "b" in text:
            raise AskError("bad_request", "no b")
        return 1

    counter = FromServer(ask)
    assert [counter.count(text) for text in ("b" * 10, "a" * 10)] == [4, 1]


def test_unpaired_surrogates_do_not_reach_a_server():
    asked = []
    FromServer(lambda text: asked.append(text) or 1).count("a \ud800")
    assert asked == ["a ?"]


def test_vllms_server_counts_beside_its_api(monkeypatch):
    pytest.importorskip("openai")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    with FakeServer(tokenizes=True) as server:
        counter = server_tokens(OpenAISettings(model="tiny", base_url=server.url))
        assert [counter.count("a b c"), counter.count("a b c")] == [3, 3]
        assert server.calls == ["/tokenize"]
        counter.close()
        counter.close()


@pytest.mark.parametrize("answer", ["{}", "no json", '{"count": -1}', '{"count": "many"}'])
def test_what_is_no_count_is_no_count(answer):
    pytest.importorskip("openai")
    with FakeServer() as server, mock.patch.object(server, "reply", side_effect=ReplyError(200, answer)):
        counter = server_tokens(OpenAISettings(model="tiny", base_url=server.url))
        assert counter.count("a" * 10) == 4
        assert not counter.counts
        counter.close()


def test_a_tokenizer_needs_its_folder(tmp_path):
    with pytest.raises(UsageError, match="no folder with a tokenizer"):
        FromTokenizer(tmp_path / "missing").count("a")


def test_a_tokenizer_needs_transformers(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match="transformers is needed"):
        FromTokenizer(tmp_path).count("a")


def test_a_tokenizer_is_loaded_once_from_its_folder_and_never_from_the_network(tmp_path, monkeypatch):
    loads = []

    class Tokenizer:
        def encode(self, text, *, add_special_tokens):
            assert add_special_tokens is False
            return text.encode().split()

    def from_pretrained(path, *, local_files_only):
        loads.append((path, local_files_only))
        return Tokenizer()

    fake = SimpleNamespace(AutoTokenizer=SimpleNamespace(from_pretrained=from_pretrained))
    monkeypatch.setitem(sys.modules, "transformers", fake)
    counter = FromTokenizer(tmp_path)
    assert loads == []
    assert [counter.count("a b c"), counter.count("a \ud800")] == [3, 2]
    assert loads == [(str(tmp_path), True)]


def test_a_real_tokenizer_counts_its_own_tokens(tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="?").save_pretrained(tmp_path)
    assert FromTokenizer(tmp_path).count("a b a c") == 4


def test_a_folder_without_a_tokenizer_is_a_clear_error(tmp_path):
    pytest.importorskip("transformers")
    with pytest.raises(UsageError, match="no readable tokenizer"):
        FromTokenizer(tmp_path).count("a")
