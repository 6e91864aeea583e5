"""A policy whose model uses tools while it analyses a parent."""

from __future__ import annotations

import threading

import pytest

from evaluator.errors import KernevoError, UsageError
from evaluator.types import EvalStatus, Evaluation, KernelSource
from policy.tool_desk import ToolDesk
from policy.types import ParentView
from tests.policy import fake_server
from tests.policy.asking import policy_for, request
from tests.policy.fake_server import FakeServer, calls, error, says

pytest.importorskip("openai")

PHASES = ("analyse", "generate")
SEARCH = calls("search_kernels", {"query": "tl.dot accumulate", "task": "matmul"})
DRAFT = calls("evaluate_kernel", {"source": "x = 1\n"})


class Drafts:
    """A judge of drafts that gives one verdict, or raises, and keeps what it saw."""

    def __init__(self, problem=None):
        self.seen, self.closed, self._problem = [], 0, problem

    def judge(self, source):
        self.seen.append((source.text, threading.current_thread().name))
        if self._problem is not None:
            raise self._problem
        return Evaluation(source_sha=source.sha, task="softmax", evaluator="cpu", status=EvalStatus.COMPILE_ERROR)

    def close(self):
        self.closed += 1


def desk(*names, **more):
    return ToolDesk(names or ("search_kernels",), more.pop("rounds", 4), **more)


def tool_messages(server, number):
    return [m["content"] for m in server.requests[number]["messages"] if m["role"] == "tool"]


def test_the_model_searches_before_it_analyses_and_its_use_of_tools_is_on_the_record(ask):
    with FakeServer([SEARCH, says("Use a dot product.")]) as server:
        (proposal,), summary = ask(server, request(), phases=PHASES, tools=desk())
        first, second, third = server.requests
    assert [tool["function"]["name"] for tool in first["tools"]] == ["search_kernels"]
    assert "seed of matmul" in tool_messages(server, 1)[0]
    assert "tools" not in third
    assert "Use a dot product." in third["messages"][-1]["content"]
    assert second["seed"] == first["seed"]
    assert proposal.policy == "openai"
    used = proposal.sampling["tools"]["search_kernels"]
    assert (used["calls"], used["errors"]) == (1, 0)
    assert summary["tools"] == proposal.sampling["tools"]
    assert summary["asked"] == summary["answered"] == 3


def test_children_of_one_parent_share_one_conversation(ask):
    with FakeServer([SEARCH, says("It waits.")]) as server:
        proposals, summary = ask(server, *(request(seed=n) for n in range(3)), phases=PHASES, tools=desk())
    assert summary["tools"]["search_kernels"]["calls"] == 1
    assert all(proposal.sampling["tools"]["search_kernels"]["calls"] == 1 for proposal in proposals)


def test_without_tools_nothing_about_them_is_recorded(ask):
    with FakeServer([says("It waits.")]) as server:
        (proposal,), summary = ask(server, request(), phases=PHASES)
    assert "tools" not in {*proposal.sampling, *summary}


def test_the_searchs_elites_and_a_folder_of_files_are_found(ask, tmp_path):
    (tmp_path / "mine.py").write_text("def zebra(): pass\n")
    (tmp_path / "notes.md").write_text("# Zebras\nzebra stripes\n")
    elite = ParentView(candidate_id="c000042", source=KernelSource(text="zebra = 1\n"))
    script = [
        calls("search_kernels", {"query": "zebra"}),
        calls("search_documents", {"query": "stripes"}),
        says("Stripes."),
    ]
    tools = desk("search_kernels", "search_documents", documents=tmp_path)
    with FakeServer(script) as server:
        ask(server, request(inspirations=(elite,)), phases=PHASES, tools=tools)
    kernels, documents = tool_messages(server, 2)
    assert "c000042" in kernels
    assert "mine.py" in kernels
    assert "zebra stripes" in documents


def test_a_draft_is_judged_off_the_event_loop_and_the_judge_is_closed_with_the_policy(ask):
    drafts = Drafts()
    with FakeServer([DRAFT, says("Do not write that.")]) as server:
        ask(server, request(), phases=PHASES, tools=desk("evaluate_kernel", judge=drafts))
    ((text, thread),) = drafts.seen
    assert (text, drafts.closed) == ("x = 1\n", 1)
    assert thread.startswith("kernevo-tools")
    assert "Verdict: compile_error" in tool_messages(server, 1)[0]


@pytest.mark.parametrize("problem", [KernevoError("no compiler"), RuntimeError("a bug")])
def test_a_tool_that_raises_does_not_end_the_question(ask, problem):
    with FakeServer([DRAFT, says("I do without.")]) as server:
        (proposal,), summary = ask(
            server, request(), phases=PHASES, tools=desk("evaluate_kernel", judge=Drafts(problem))
        )
    assert proposal.policy == "openai"
    assert proposal.sampling["tools"]["evaluate_kernel"]["errors"] == 1
    assert summary["failures"] == {}


def test_a_conversation_that_outgrows_the_context_is_followed_by_a_question_without_tools(ask):
    words = "This model's maximum context length is 100 tokens. However, you requested 200 tokens."
    with FakeServer([SEARCH, error(400, words), says("Plain.")]) as server:
        (proposal,), summary = ask(server, request(), phases=PHASES, tools=desk())
        assert "tools" not in server.requests[2]
        assert "Plain." in server.requests[3]["messages"][-1]["content"]
    assert proposal.policy == "openai"
    assert summary["failures"] == {}
    assert summary["tools"]["search_kernels"]["calls"] == 1


def test_a_server_that_dies_in_the_conversation_is_replaced_by_rules(ask):
    with FakeServer([SEARCH, fake_server.drops]) as server:
        (proposal,), summary = ask(server, request(), phases=PHASES, tools=desk())
    assert proposal.policy == "rule"
    assert sum(summary["failures"].values()) == 1


def test_closing_ends_a_conversation_that_waits_for_the_server():
    asked = threading.Event()

    def waits(server, body, handler):
        asked.set()
        return fake_server.hangs(server, body, handler)

    drafts = Drafts()
    with FakeServer([waits]) as server:
        policy = policy_for(server, phases=PHASES, tools=desk("evaluate_kernel", judge=drafts), timeout_s=600.0)
        pending = policy.submit([request()])
        assert asked.wait(60)
        policy.close()
        assert pending.done()
    assert drafts.closed == 1


def test_a_folder_that_is_not_there_is_told_before_anything_is_asked(tmp_path):
    with pytest.raises(UsageError, match="no such folder"):
        desk(documents=tmp_path / "nothing")
